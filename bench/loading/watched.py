"""Run a server, and write the longest CPU time of a turn of its event loop into a shared file.

The environment variable `WATCHED` has the path of the file. The file has one double in
milliseconds, which the reader may set to 0. CPU time does not grow if the machine is busy.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

import uvloop

VARIABLE = "WATCHED"
EVERY_S = 0.005  # the pause between two ticks, within which the loop may turn several times


def shared(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 8)


def read_ms(memory: mmap.mmap) -> float:
    value: float = struct.unpack("d", memory[:])[0]
    return value


def write_ms(memory: mmap.mmap, value: float) -> None:
    memory[:] = struct.pack("d", value)


def _watch(loop: asyncio.AbstractEventLoop, memory: mmap.mmap) -> None:
    ticked, last_s = threading.Event(), [0.0]

    def tick() -> None:
        now_s = time.thread_time()
        used_ms, last_s[0] = (now_s - last_s[0]) * 1000, now_s
        write_ms(memory, max(read_ms(memory), used_ms))
        ticked.set()

    while not loop.is_closed():
        ticked.clear()
        try:
            loop.call_soon_threadsafe(tick)
        except RuntimeError:
            return
        ticked.wait()
        time.sleep(EVERY_S)


def _run(main: Any, run: Any = uvloop.run, **options: Any) -> Any:
    async def watched() -> Any:
        memory = shared(Path(os.environ[VARIABLE]))
        loop = asyncio.get_running_loop()
        threading.Thread(target=_watch, args=(loop, memory), daemon=True).start()
        return await main

    return run(watched(), **options)


if __name__ == "__main__":
    uvloop.run = _run
    from tidings.server.command import serve

    serve(prog_name="tidings serve")
