"""Writing of streams: each request appends a page to the feed's log and updates its stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.durable_streams import messages
from tidings.core.durable_streams.stream import (
    Appending,
    Extent,
    InvalidStream,
    Stream,
    after,
    check_same,
    is_repeated,
    known,
)
from tidings.core.ingest.ingest import Request, appended
from tidings.core.limits import ID_BYTES_MAX
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.operations import check_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.durable_streams.stream import StreamStore, Together
    from tidings.core.effects import Clock, Count
    from tidings.core.log.append import Appender
    from tidings.core.tracing import Tracer


@dataclass(frozen=True, slots=True)
class StreamWriter:
    """
    A writer that creates, extends and deletes streams. *trace* is a parsed trace header
    (`tracing.asked`).

    A page and the document of its stream are written *together*. A producer that does not know
    whether its request was accepted can therefore repeat it, and gets the answer.
    """

    appender: Appender
    store: StreamStore
    together: Together
    clock: Clock
    count: Count
    tracer: Tracer

    def create(
        self, feed: str, name: str, asked: Appending, trace: str | None = None
    ) -> tuple[Stream, bool]:
        """
        Create the stream *name* with *asked* as its first messages; return it, and True if it is
        new.

        An existing stream is left unchanged.

        Raises:
            StreamConflict: a stream with other properties exists.
            Rejected: see the rule in the error; the stream was not created.
        """
        check_text(name, "name", ID_BYTES_MAX)
        with self.together():
            stream = self.store.stream(feed, name)
            if stream is not None:
                check_same(stream, asked.content_type, closed=asked.closes)
                return stream, False
            self.appender.check_writable(feed)
            begins = Place(self.appender.log.head(feed), PAGE_END, self.clock() // 1000)
            stream = Stream(name, asked.content_type, begins, begins)
            return self._written(feed, stream, asked, self._lines(stream, asked), trace), True

    def append(
        self, feed: str, name: str, asked: Appending, trace: str | None = None
    ) -> tuple[Stream, bool]:
        """
        Append *asked* to the stream *name*; return the stream, and False if it was appended before.

        Raises:
            UnknownStream: the stream does not exist.
            Rejected: see the rule in the error; nothing was appended.
        """
        with self.together():
            stream = known(self.store.stream(feed, name), name)
            self.appender.check_writable(feed)
            check_complete(asked)
            if is_repeated(stream, asked):
                return stream, False
            lines = self._lines(stream, asked)
            if asked.body and not lines:
                raise InvalidStream("must hold a message", field="body")
            return self._written(feed, stream, asked, lines, trace), True

    def remove(self, feed: str, name: str, trace: str | None = None) -> None:
        """
        Delete the stream *name*.

        Raises:
            UnknownStream: the stream does not exist.
            Chained: *feed* is a copy.
        """
        with self.together():
            known(self.store.stream(feed, name), name)
            self._append(feed, [messages.deletion(name, self.clock())], trace)
            self.store.remove(feed, name)

    def _lines(self, stream: Stream, asked: Appending) -> list[str]:
        if not asked.body:
            return []
        return messages.lines_from(stream.name, stream.media_type, asked.body, self.clock())

    def _written(
        self, feed: str, stream: Stream, asked: Appending, lines: Sequence[str], trace: str | None
    ) -> Stream:
        if not lines:
            changed = after(stream, asked, stream.tail)
            self.store.write(feed, changed)
            return changed
        last = self._append(feed, lines, trace)
        changed = after(stream, asked, last)
        self.store.write(feed, changed, Extent(stream.tail, last))
        return changed

    def _append(self, feed: str, lines: Sequence[str], trace: str | None) -> Place:
        """Append *lines* as a page; return the place of the last one."""
        request = Request(feed, b"", "", trace=trace)
        page = appended(self.appender, self.tracer, request, lines, None)
        self.count("OperationsIngested", len(lines))
        return Place(page.number, len(lines) - 1, page.seconds)


def check_complete(asked: Appending) -> None:
    """
    Return if *asked* has content with its type, or closes the stream.

    Raises:
        InvalidStream: it does not.
    """
    if not asked.body and not asked.closes:
        raise InvalidStream("must not be empty, unless Stream-Closed is true", field="body")
    if asked.body and not asked.content_type:
        raise InvalidStream("is required", field="Content-Type")
