"""A way between two twins that can be cut, as a network is partitioned."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Way:
    """Forwards connections to *target* as long as it is *open*."""

    def __init__(self, target: int) -> None:
        self.port, self.open = 0, True
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()

    def cut(self) -> None:
        """Nothing passes any more, also on the connections there are."""
        self.open = False
        self._loop.call_soon_threadsafe(self._abort)

    def heal(self) -> None:
        self.open = True

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if not self.open:
                writer.transport.abort()
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            both = {writer, far_writer}
            self._writers |= both
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                self._writers -= both
                for each in both:
                    each.transport.abort()

    @contextlib.contextmanager
    def serving(self) -> Iterator[Way]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(5)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
