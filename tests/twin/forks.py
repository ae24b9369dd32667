"""Processes of functions, forked from a process that has imported what they import.

So a worker starts as with SnapStart: Python, botocore and our modules are in memory. The imports
would cost it a second of CPU time, and a twin has 20 to 40 workers. Handlers are not preloaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

from tests.twin.environment import Program
from tests.twin.store import PREFIX

_PR_SET_PDEATHSIG = 1
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.twin.preloaded"])


@contextlib.asynccontextmanager
async def prepared() -> AsyncIterator[None]:
    """Start the process that forks the others, which then imports their modules; end it last."""
    await asyncio.to_thread(forkserver.ensure_running)
    try:
        yield
    finally:  # without this, it ends soon after this process
        for started in (forkserver._forkserver, resource_tracker._resource_tracker):
            started._stop()  # type: ignore[union-attr]


class Fork:
    """A process that runs *main* as *program*; it appends its output to the file *log*."""

    def __init__(self, program: Program, log: Path, main: Callable[..., None], *args: object):
        arguments = (program, log, main, *args)
        self._process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._process.sentinel, self._end)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or minus the signal that ended the process; None while it runs."""
        return self._process.exitcode

    async def wait(self) -> None:
        await self._ended.wait()

    def kill(self) -> None:
        """Kill the process, and all processes in its process group."""
        self._process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._ended.set()


def _run(program: Program, log: Path, main: Callable[..., None], *args: object) -> None:
    if sys.platform == "linux":
        # End with the process that forks, which ends with the twin. Be found by the name.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        Path("/proc/self/comm").write_text(program.name.removeprefix(PREFIX))
    os.setsid()
    # Among what was inherited is a descriptor that would keep the process that forks alive.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    os.chdir(program.folder)
    sys.path.insert(0, str(program.folder))
    main(*args)


def handle(api: str) -> None:
    """Run the handler under AWS's runtime client."""
    os.environ["AWS_LAMBDA_RUNTIME_API"] = api  # the client reads it when it is imported
    sys.argv = ["awslambdaric", "handler.handle"]
    runpy.run_module("awslambdaric", run_name="__main__")


def serve(port: int) -> None:
    """Serve the app of a streaming function."""
    import uvicorn

    uvicorn.run("handler:app", port=port, log_level="warning", server_header=False)
