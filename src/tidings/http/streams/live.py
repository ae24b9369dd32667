"""
Streams at the end of the log, to which the poller of the feed writes, so they need no own task.

The text of a page is built and encoded once for all streams with the same form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from tidings.core.catchup.catchup import Progress
from tidings.http.asgi import frame_chunk

if TYPE_CHECKING:
    from tidings.core.catchup.sse import Stream, Tail
    from tidings.http.asgi import WriteNow

HEARTBEAT_MS = 20_000  # oplog guaranteed 25.5 s; proxies close silent streams after 30 s


class _Text(NamedTuple):
    """The framed text of some pages, the number of its events, and the progress after them."""

    frame: bytes
    events: int
    progress: Progress


# Texts by the form and the progress of the streams that need them; None if not in memory.
Texts = dict[tuple[Hashable, Progress], "_Text | None"]


def _text(stream: Stream, tail: Tail) -> _Text | None:
    chunk = stream.take(tail)
    if chunk is None:
        return None
    text = chunk.text
    mark = "}\n" if stream.lines else "\nevent: "  # occurs once in each line or block
    return _Text(frame_chunk(text) if text else b"", text.count(mark), chunk.progress)


class LiveStream:
    """
    The progress of an open stream. With *write*, its poller may send to it.

    *left* is done when the stream must continue by itself, because its client does not keep up, its
    credential has ended, or the log does not answer. *sent* is the progress that its client has.
    """

    def __init__(self, stream: Stream, write: WriteNow | None) -> None:
        self.stream, self._write = stream, write
        self._loop = asyncio.get_running_loop()
        self._sent_s, self.sent = self._loop.time(), stream.progress
        self.left: asyncio.Future[None] = self._loop.create_future()

    @property
    def silent_ms(self) -> float:
        """Return the time until something has to be sent."""
        return HEARTBEAT_MS - (self._loop.time() - self._sent_s) * 1000

    def mark_sent(self, progress: Progress) -> None:
        """Record that data up to *progress* was sent now."""
        self._sent_s, self.sent = self._loop.time(), progress

    def begin(self) -> bool:
        """Return True if the poller can serve the stream now."""
        stream = self.stream
        if self._write is None or stream.filter.leave or not stream.progress.in_step:
            return False
        self.left = self._loop.create_future()
        return True

    def leave(self) -> None:
        """Let the stream continue by itself."""
        if not self.left.done():
            self.left.set_result(None)

    def send(self, tail: Tail, texts: Texts) -> None:
        """Write the pages of *tail* that the stream lacks; *texts* caches texts for all streams."""
        stream, before = self.stream, self.stream.progress
        if self.left.done() or (stream.admission.may_end and stream.has_ended()):
            self.leave()
            return
        place = stream.text_key, before
        if place not in texts:
            texts[place] = _text(stream, tail)
        text = texts[place]
        if text is None:
            self.leave()
            return
        stream.progress = text.progress
        if text.frame:
            assert self._write is not None
            if self._write(text.frame, text.events):
                self.mark_sent(text.progress)
            else:
                stream.progress = before
                self.leave()
