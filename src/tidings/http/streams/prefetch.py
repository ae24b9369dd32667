"""Prefetch the chunks of a stream: while one is sent, a thread reads the next."""

from __future__ import annotations

import asyncio

from tidings.core.catchup.sse import Chunk, Stream
from tidings.http.streams.tail_poller import TailPoller


class Chunks:
    """The chunks of a stream, from memory if the poller's tail has them, else from the stores."""

    def __init__(self, stream: Stream, poller: TailPoller) -> None:
        self._stream, self._poller = stream, poller
        self._upcoming: asyncio.Task[Chunk] | None = None

    async def next(self) -> Chunk:
        """
        Return the next chunk and start to read one more, to be ready when this one is sent.

        Raises:
            Unavailable: the stores do not answer.
        """
        upcoming, self._upcoming = self._upcoming, None
        chunk = await (upcoming if upcoming is not None else self._read())
        if not (chunk.at_frontier or chunk.wait_ms):
            self._upcoming = asyncio.ensure_future(self._read())
        return chunk

    async def rest(self, chunk: Chunk, gone: asyncio.Future[None], wait_ms: float) -> None:
        """
        Wait for at most *wait_ms* after *chunk*, until there is news or reading is allowed again.
        """
        if chunk.wait_ms:
            await asyncio.wait({gone}, timeout=min(chunk.wait_ms, wait_ms) / 1000)
        elif chunk.at_frontier:
            await self._poller.wait(self._stream.progress.page, gone, wait_ms / 1000)

    def stop(self) -> None:
        """Cancel the read in progress and ignore its errors."""
        if self._upcoming is not None:
            self._upcoming.cancel()

    async def _read(self) -> Chunk:
        tail = self._poller.tail
        chunk = self._stream.take(tail) if tail is not None else None
        return chunk if chunk is not None else await asyncio.to_thread(self._stream.next)
