"""A TCP proxy before a feed that breaks connections: at random moments, or on command."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.oplog.wire import until

CHUNK_BYTES = 4096  # small, so that cuts fall inside messages too
LIFE_MIN_S = 0.02  # hardly connected


class Cutter:
    """Forwards to *port* and counts its *cuts*; no connection lives longer than *life_max_s*.

    After `calm` new connections are left alone. From `cut` to `heal` nothing passes, as when a
    network is partitioned.
    """

    def __init__(self, port: int, seed: int, life_max_s: float | None) -> None:
        self.cuts = 0
        self.port = 0
        self._to = port
        self._life_max_s = life_max_s
        self._random = random.Random(seed)
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def calm(self, *, after: int) -> None:
        """Cut no new connections after *after* cuts; existing connections may still be cut.

        Raises:
            AssertionError: no client connects often enough to be cut.
        """
        until(lambda: self.cuts >= after)
        self._life_max_s = None

    def cut(self) -> None:
        self._is_open = False
        self._loop.call_soon_threadsafe(self._abort)

    def heal(self) -> None:
        self._is_open = True

    def run(self, ready: threading.Event, end: asyncio.Event) -> None:
        """Serve until *end*, which is set in the loop of `stop`."""
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve(ready, end))
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))

    def stop(self, end: asyncio.Event) -> None:
        self._loop.call_soon_threadsafe(end.set)

    async def _serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._is_open:
                raise ConnectionRefusedError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
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
            self._writers -= both
            for each in both:
                each.transport.abort()

    def _abort(self) -> None:
        for each in self._writers:
            each.transport.abort()

    def _life_s(self) -> float | None:
        if self._life_max_s is None:
            return None
        return self._random.uniform(LIFE_MIN_S, self._life_max_s)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.close()


@contextmanager
def cutting(port: int, seed: int = 0, *, life_max_s: float | None = None) -> Iterator[Cutter]:
    """Yield a cutter in front of *port*, in a thread of its own."""
    cutter = Cutter(port, seed, life_max_s)
    end, ready = asyncio.Event(), threading.Event()
    thread = threading.Thread(target=cutter.run, args=[ready, end], daemon=True)
    thread.start()
    ready.wait()
    try:
        yield cutter
    finally:
        cutter.stop(end)
        thread.join(timeout=5)
