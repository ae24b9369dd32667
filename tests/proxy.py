"""The way to a feed, which can be cut: a TCP proxy that aborts what goes through it on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

_CHUNK_BYTES = 64 * 1024

Passes = Callable[[bytes], bytes]


class Proxy:
    """Forwards to *port* on this machine; it is at `port` itself."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._to = port
        self._open: set[asyncio.StreamWriter] = set()
        self._at_work: set[asyncio.Task[None]] = set()

    def passes(self, chunk: bytes) -> bytes:
        """Return the forwarded part of *chunk*, which came from the feed."""
        return chunk

    def cut(self) -> int:
        """Abort every connection, in the middle of whatever it carries; how many there were."""
        cut, self._open = self._open, set()
        for each in cut:
            each.transport.abort()
        return len(cut)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._at_work)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:  # no process listens
            writer.transport.abort()
            return
        self._open.add(writer)
        pumps = [
            asyncio.ensure_future(_pump(reader, far_writer, bytes)),
            asyncio.ensure_future(_pump(far_reader, writer, self.passes)),
        ]
        try:  # either side ends both
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.wait(pumps)
            self._open.discard(writer)
            writer.transport.abort()
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Passes) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(passes(chunk))
            await writer.drain()
