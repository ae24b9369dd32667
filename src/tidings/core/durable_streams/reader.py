"""Reading of streams: the messages after an offset, up to the size of one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.stream import OffsetGone
from tidings.core.durable_streams.stream import known as checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.durable_streams.stream import Extent, Stream, StreamStore
    from tidings.core.log.reader import Reader
    from tidings.core.model.cursors import Cursor, Place
    from tidings.core.model.pages import Page

_GONE = "is not in the log any more, or never was; read from -1, or from now"


@dataclass(frozen=True, slots=True)
class Portion:
    """
    The *data* of the messages of *stream* after *start*, up to *end*.

    *size* is the size of the pages read, as rates count it.
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
        """Return True if nothing will ever follow."""
        return self.at_tail and self.stream.closed

    @property
    def etag(self) -> str:
        """Return an ETag that differs if the answer differs."""
        begins, start, end = map(messages.encode_offset, (self.stream.begins, self.start, self.end))
        return f'"{begins}:{start}:{end}{":closed" if self.is_last else ""}"'


def _nothing(feed: str, cursor: Cursor) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StreamReader:
    """
    A reader of streams. *lost* returns True if a reader with a cursor may have seen lost pages.
    """

    store: StreamStore
    log: Reader
    lost: Callable[[str, Cursor], bool] = _nothing

    def stream(self, feed: str, name: str) -> Stream:
        """
        Return the stream *name*.

        Raises:
            UnknownStream: it does not exist.
        """
        return checked(self.store.stream(feed, name), name)

    def read(self, feed: str, name: str, offset: str | None) -> Portion:
        """
        Return the messages after *offset*, None for the beginning: whole pages, about 1 MB.

        Raises:
            UnknownStream, InvalidStream: the stream or the offset does not exist.
            OffsetGone: a message after *offset* is below the floor of the log, or *offset* is of a
                page that was lost.
        """
        stream = self.stream(feed, name)
        if offset == messages.NOW:
            return Portion(stream, stream.tail, stream.tail, [])
        begins = offset is None or offset == messages.BEGINNING
        start = stream.begins if begins else messages.parse_offset(offset or "")
        known = _order(stream.begins) <= _order(start) <= _order(stream.tail)
        if not known or self.lost(feed, start):
            raise OffsetGone(_GONE, field="offset", value=offset)
        return self._portion(feed, stream, start)

    def _portion(self, feed: str, stream: Stream, start: Place) -> Portion:
        end, data, size, charged = start, list[Any](), 0, 0
        for extent in self._extents(feed, stream, start):
            page = self._page(feed, extent, end)
            data += messages.data_of(page, end.slot + 1 if end.page == page.number else 0)
            end, size, charged = extent.last, size + len(page.text), charged + page.size
            if size >= limits.READ_PAGES_BYTES_MAX:
                break
        else:
            if _order(end) < _order(stream.tail) and not data:
                raise OffsetGone(_GONE, field="offset", value=messages.encode_offset(start))
        return Portion(stream, start, end, data, charged)

    def _extents(self, feed: str, stream: Stream, start: Place) -> list[Extent]:
        """
        Return the extents up to the tail of *stream*: a deleted stream may have a newer namesake.
        """
        found = self.store.extents(feed, stream.name, start, limits.STREAM_PAGES_MAX)
        return [each for each in found if _order(each.last) <= _order(stream.tail)]

    def _page(self, feed: str, extent: Extent, end: Place) -> Page:
        """
        Return the page of *extent*, which follows *end* if nothing is missing between the two.
        """
        number = extent.last.page
        page = None
        if _order(extent.before) <= _order(end) and number >= self.log.trim.floor(feed):
            page = self.log.at(feed, number)
        if page is None:
            raise OffsetGone(_GONE, field="offset", value=messages.encode_offset(end))
        return page


def _order(place: Place) -> tuple[int, int]:
    """Return the key by which places of a feed ascend, which does not include their seconds."""
    return place.page, place.slot
