"""Read the messages of a stream after an offset, and write messages to a stream.

A read returns the messages of one response, which has a maximum size. A write appends its messages,
if it has any, as a page to the feed's log, and updates the document of the stream.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.stream import (
    Appending,
    Extent,
    InvalidStream,
    OffsetGone,
    Stream,
    after,
    check_same,
    is_repeated,
    require_stream,
)
from tidings.core.durable_streams.stream import require_stream as checked
from tidings.core.errors import TidingsError
from tidings.core.ingest.ingest import PostRequest, append_lines
from tidings.core.limits import ID_BYTES_MAX
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.operations import check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.durable_streams.stream import StreamStore
    from tidings.core.effects import Runtime
    from tidings.core.log.append import Appender
    from tidings.core.log.reader import Reader
    from tidings.core.model.cursors import Cursor
    from tidings.core.model.pages import Page
    from tidings.core.tracing import Tracer


_LARGE_BYTES = 32 * 1024  # the parsing of a larger body takes longer than a write
_GONE = "is not in the log any more, or never was; read from -1, or from now"


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The *data* of the messages of *stream* after *start*, up to *end*.

    *size* is the size of the pages that were read, which counts against the rate of a key.
    """

    stream: Stream
    start: Place
    end: Place
    data: list[Any]
    size: int = 0

    @property
    def at_tail(self) -> bool:
        return _order(self.end) >= _order(self.stream.tail)

    @property
    def is_last(self) -> bool:
        """Return True if no message can follow *end*, because the stream is closed there."""
        return self.at_tail and self.stream.closed

    @property
    def etag(self) -> str:
        """Return an ETag that changes if the response changes."""
        begins, start, end = map(messages.encode_offset, (self.stream.begins, self.start, self.end))
        return f'"{begins}:{start}:{end}{":closed" if self.is_last else ""}"'


@dataclass(frozen=True, slots=True)
class StreamReader:
    """A reader of streams.

    *lost* takes a feed and a cursor. It returns True if a client with this cursor may have received
    operations that a restore of the log has lost.
    """

    store: StreamStore
    log: Reader
    lost: Callable[[str, Cursor], bool] = lambda feed, cursor: False

    def stream(self, feed: str, name: str) -> Stream:
        """Return the stream *name*.

        Raises:
            UnknownStream: the stream does not exist.
        """
        return checked(self.store.stream(feed, name), name)

    def read(self, feed: str, name: str, offset: str | None) -> StreamPart:
        """Return the messages after *offset*, or from the beginning if *offset* is None.

        Return whole pages, until their size reaches `limits.READ_PAGES_BYTES_MAX`.

        Raises:
            UnknownStream: the stream does not exist.
            InvalidStream: *offset* is not an offset.
            OffsetGone: a message after *offset* is below the floor of the log, a restore has lost
                the page of *offset*, or the stream has no such offset.
        """
        stream = self.stream(feed, name)
        if offset == messages.NOW:
            return StreamPart(stream, stream.tail, stream.tail, [])
        begins = offset is None or offset == messages.BEGINNING
        start = stream.begins if begins else messages.parse_offset(offset or "")
        known = _order(stream.begins) <= _order(start) <= _order(stream.tail)
        if not known or self.lost(feed, start):
            raise OffsetGone(_GONE, field="offset", value=offset)
        return self._part(feed, stream, start)

    def _part(self, feed: str, stream: Stream, start: Place) -> StreamPart:
        end, data, size, charged = start, list[Any](), 0, 0
        for extent in self.store.extents(feed, stream.name, start, limits.STREAM_PAGES_MAX):
            if _order(extent.last) > _order(stream.tail):
                continue  # it belongs to a newer stream with the same name
            page = self._page(feed, extent, end)
            data += messages.data_of(page, end.slot + 1 if end.page == page.number else 0)
            end, size, charged = extent.last, size + len(page.text), charged + page.size
            if size >= limits.READ_PAGES_BYTES_MAX:
                break
        else:
            if _order(end) < _order(stream.tail) and not data:
                raise OffsetGone(_GONE, field="offset", value=messages.encode_offset(start))
        return StreamPart(stream, start, end, data, charged)

    def _page(self, feed: str, extent: Extent, end: Place) -> Page:
        """Return the page of *extent*, the next page of the stream after *end*."""
        number = extent.last.page
        page = None
        if _order(extent.before) <= _order(end) and number >= self.log.log.floor(feed):
            page = self.log.at(feed, number)
        if page is None:
            raise OffsetGone(_GONE, field="offset", value=messages.encode_offset(end))
        return page


def _order(place: Place) -> tuple[int, int]:
    """Return the key by which places are sorted. It does not include their seconds."""
    return place.page, place.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriter:
    """A writer that creates, extends and deletes streams.

    In all methods, *trace* is the result of `tracing.parse_trace_headers`.

    A page and the document of its stream are written in one transaction. A producer that does not
    know whether its request was accepted can therefore repeat the request, and gets the same
    response.
    """

    appender: Appender
    store: StreamStore
    runtime: Runtime
    tracer: Tracer

    def create(
        self, feed: str, name: str, appending: Appending, trace: str | None = None
    ) -> tuple[Stream, bool]:
        """Create the stream *name* with *appending* as its first messages.

        Return the stream, and True if it is new. An existing stream is left unchanged.

        Raises:
            StreamConflict: a stream with other properties exists.
            Rejected: see the rule in the error; the stream was not created.
        """
        check_text(name, "name", ID_BYTES_MAX)
        new = Stream(name, appending.content_type, Place(0, 0, 0), Place(0, 0, 0))
        lines_for = self._parse(new, appending)

        def write() -> tuple[Stream, bool]:
            stream = self.store.stream(feed, name)
            if stream is not None:
                check_same(stream, appending.content_type, closed=appending.closes)
                return stream, False
            self.appender.check_writable(feed)
            begins = Place(self.appender.log.head(feed), PAGE_END, self.runtime.clock() // 1000)
            stream = Stream(name, appending.content_type, begins, begins)
            return self._write(feed, stream, appending, lines_for(stream), trace), True

        return self.appender.log.together(write)

    def append(
        self, feed: str, name: str, appending: Appending, trace: str | None = None
    ) -> tuple[Stream, bool]:
        """Append to the stream *name*; return the stream, and whether *appending* was new.

        Raises:
            UnknownStream: the stream does not exist.
            Rejected: see the rule in the error; nothing was appended.
        """
        is_large = len(appending.body) > _LARGE_BYTES
        lines_for = self._parse(self.store.stream(feed, name) if is_large else None, appending)

        def write() -> tuple[Stream, bool]:
            stream = require_stream(self.store.stream(feed, name), name)
            self.appender.check_writable(feed)
            check_complete(appending)
            if is_repeated(stream, appending):
                return stream, False
            lines = lines_for(stream)
            if appending.body and not lines:
                raise InvalidStream("must contain a message", field="body")
            return self._write(feed, stream, appending, lines, trace), True

        return self.appender.log.together(write)

    def remove(self, feed: str, name: str, trace: str | None = None) -> None:
        """Delete the stream *name*.

        Raises:
            UnknownStream: the stream does not exist.
            Chained: *feed* is a chained feed.
        """

        def write() -> None:
            require_stream(self.store.stream(feed, name), name)
            self._append(feed, [messages.deletion(name, self.runtime.clock())], trace)
            self.store.remove(feed, name)

        self.appender.log.together(write)

    def _parse(
        self, stream: Stream | None, appending: Appending
    ) -> Callable[[Stream], Sequence[str]]:
        """Return a function for the lines of *appending* for a stream, or raises the error.

        A large body is parsed now, for *stream*, because the transaction would delay other writers.
        """
        if stream is None or len(appending.body) <= _LARGE_BYTES:
            return lambda current: self._lines(current, appending)
        media_type = stream.media_type
        parsed: Future[Sequence[str]] = Future()
        try:
            parsed.set_result(self._lines(stream, appending))
        except TidingsError as error:
            parsed.set_exception(error)

        def lines_for(current: Stream) -> Sequence[str]:
            if current.media_type != media_type:  # the stream was replaced in the meantime
                return self._lines(current, appending)
            return parsed.result()

        return lines_for

    def _lines(self, stream: Stream, appending: Appending) -> list[str]:
        if not appending.body:
            return []
        return messages.lines_from(
            stream.name, stream.media_type, appending.body, self.runtime.clock()
        )

    def _write(
        self,
        feed: str,
        stream: Stream,
        appending: Appending,
        lines: Sequence[str],
        trace: str | None,
    ) -> Stream:
        if not lines:
            changed = after(stream, appending, stream.tail)
            self.store.write(feed, changed)
            return changed
        last = self._append(feed, lines, trace)
        changed = after(stream, appending, last)
        self.store.write(feed, changed, Extent(stream.tail, last))
        return changed

    def _append(self, feed: str, lines: Sequence[str], trace: str | None) -> Place:
        """Append *lines* as a page; return the place of the last line."""
        request = PostRequest(feed, b"", "", trace=trace)
        page = append_lines(self.appender, self.tracer, request, b"", lines, None)
        self.runtime.count("OperationsIngested", len(lines))
        return Place(page.number, len(lines) - 1, page.seconds)


def check_complete(appending: Appending) -> None:
    """Check that *appending* has content or closes the stream, and that content has a type.

    Raises:
        InvalidStream: *appending* has no content and does not close the stream, or its content
            has no type.
    """
    if not appending.body and not appending.closes:
        raise InvalidStream("must not be empty, unless Stream-Closed is true", field="body")
    if appending.body and not appending.content_type:
        raise InvalidStream("is required", field="Content-Type")
