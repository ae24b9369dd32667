"""A way to the feed that breaks: a TCP proxy that aborts each connection at a random moment."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

CHUNK_BYTES = 4096  # small, so that cuts fall inside messages too
PATIENCE_S = 60.0
LIFE_MIN_S = 0.02  # hardly connected


class Cutter:
    """
    Forwards to *port* and counts its *cuts*; no connection lives longer than *life_max_s*.

    After `calm` new connections are left alone.
    """

    def __init__(self, port: int, seed: int, life_max_s: float) -> None:
        self.cuts = 0
        self.port = 0
        self._to = port
        self._life_max_s = life_max_s
        self._random = random.Random(seed)
        self._calm = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def calm(self, *, after: int) -> None:
        """
        Cut no more once there were *after* cuts; those who are connected may still be cut.

        Raises:
            AssertionError: nobody connects often enough to be cut.
        """
        deadline = time.monotonic() + PATIENCE_S
        while self.cuts < after:
            assert time.monotonic() < deadline, f"{self.cuts} cuts"
            time.sleep(0.01)
        self._calm = True

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        pumps = asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        try:
            async with asyncio.timeout(self._life_s()):
                await pumps
        except TimeoutError:
            self.cuts += 1
        except OSError:
            pass
        finally:
            pumps.cancel()
            writer.transport.abort()
            far_writer.transport.abort()

    def _life_s(self) -> float | None:
        return None if self._calm else self._random.uniform(LIFE_MIN_S, self._life_max_s)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.close()


@contextmanager
def cutting(url: str, seed: int, *, life_max_s: float) -> Iterator[Cutter]:
    """A cutter in front of *url*, in a thread of its own."""
    port = urlsplit(url).port
    assert port is not None
    cutter = Cutter(port, seed, life_max_s)
    loop, end, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(cutter.serve(ready, end))
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield cutter
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(timeout=5)
