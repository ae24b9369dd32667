"""Read a part of a feed over HTTP, from an event stream that is parsed as text.

A read of the log starts with a cursor that says that all buckets of the state were copied
(`Replication`). Such a cursor may name any page of the log, and the server then sends `live` at the
frontier. So a read ends there even if the filter leaves out the last operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import sleep
from typing import TypeVar

import httpx

from tidings.client.address import Subscription, operations_url
from tidings.client.errors import Lost
from tidings.client.feed_api import Answer, FeedApi, NamedConsumers, connecting
from tidings.client.retries import ATTEMPTS_MAX, Backoff, repeat
from tidings.client.sse import StreamRequest
from tidings.core import limits
from tidings.core.catchup.catchup import LIVE
from tidings.core.followers.follower import STATE
from tidings.core.model.cursors import PAGE_END, Place, Replication, parse
from tidings.core.model.events import ERASE
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.operations import ERASURE_MARK
from tidings.spark.backends import Ends, cut_log, even
from tidings.spark.columns import RESET, Piece
from tidings.spark.options import Gone, Log, Where

T = TypeVar("T")
_BLOCK = re.compile(r"id: (.*)\nevent: (.*)\ndata: (.*)\n\n")
_REF = re.compile(r',"ref":"(?:[^"\\]|\\.)*"\}\Z')  # `ref` is the last key of an event
_COPYING = 0x800000  # ids with this slot or a higher one belong to a copy (PROTOCOL 5.2)
_Block = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class HttpBackend:
    """Implements `Backend`. The server filters the operations by *wanted*."""

    where: Where
    wanted: Filter = EVERYTHING

    def ends(self) -> Ends:
        fields = _repeat(self._status)
        projected = (each["checkpoint"] for each in fields["followers"] if each["name"] == STATE)
        frontier = parse(fields["frontier"]["cursor"])
        assert isinstance(frontier, Place)
        return Ends(fields["floor"], frontier, next(projected))

    def end_of(self, page: int) -> Place | None:
        """Return the end of *page*, or of the next page with operations if *page* has none."""
        where = self.where
        with NamedConsumers(where.url, where.feed, password=where.password) as api:
            query = {"from": Place(page, 0, 0).encode(), "limit": "1"}
            entries = _repeat(lambda: api.log(query)["entries"])
        place = parse(entries[0]["id"]) if entries else None
        return replace(place, slot=PAGE_END) if isinstance(place, Place) else None

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        """Divide the log only after pages that have an operation and are included in the state.

        A page that a restored log skipped has no operation, and the server would treat a cursor in
        such a page as lost.
        """
        projected = self.ends().projected
        ends = [self.end_of(each.last.page) for each in even(after, last, count)[:-1]]
        cuts = {end.page for end in ends if end and after.page < end.page < last.page}
        return cut_log(after, last, sorted(page for page in cuts if page <= projected))

    def place_or_copy(self, place: Place) -> Replication | Place:
        """Return *place*, or the copy of the state that the server sends to a stream from there."""
        id, name, _ = self._first(place)
        begun = None if name == RESET else parse(id)
        if isinstance(begun, Replication):
            return _start_of(begun)
        if begun is None:
            return Replication(0, self.ends().projected, 0, tombstones=False)
        return place

    def is_lost(self, at: Replication | Place) -> bool:
        return self._first(at)[1] == RESET

    def _status(self) -> Answer:
        with FeedApi(self.where.url, self.where.feed) as api:
            fields = api.ask("GET", "status")
        if not fields["frontier"]:
            raise Lost(f"the feed {self.where.feed} does not answer now")
        return fields

    def _first(self, at: Replication | Place) -> _Block:
        def read() -> _Block:
            with closing(self._stream(at.encode(), EVERYTHING)) as stream:
                return next(blocks[0] for blocks in stream if blocks)

        return _repeat(read)

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        begun = after.page if after.slot == PAGE_END else after.page - 1
        begun = min(begun, self.ends().projected)
        seen, patience = after, _Patience()
        while True:
            cursor = Replication(0, max(begun, seen.page - 1), limits.BUCKETS, tombstones=False)
            try:
                for blocks in self._stream(cursor.encode(), self.wanted):
                    piece, ended = _operations(blocks, seen, last)
                    if piece.lines:
                        assert piece.pages is not None and piece.slots is not None
                        seen = Place(piece.pages[-1], piece.slots[-1], 0)
                        yield piece
                        patience = _Patience()
                    if ended:
                        return
            except Lost as lost:
                patience.wait(lost)

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        """Yield whole buckets, because a new connection sends all rows of a bucket again."""
        patience = _Patience()
        while copy.bucket < end:
            try:
                for bucket, lines in self._buckets(copy, end):
                    copy, patience = replace(copy, bucket=bucket + 1), _Patience()
                    yield Piece(lines)
                return
            except Lost as lost:
                patience.wait(lost)

    def _buckets(self, copy: Replication, end: int) -> Iterator[tuple[int, list[str]]]:
        """Yield each bucket that has rows, as soon as all its rows have arrived."""
        lines: list[str] = []
        known, bucket = copy.encode(), copy.bucket
        for blocks in self._stream(known, self.wanted):
            for id, name, data in blocks:
                if id != known:
                    known, next_one = id, _bucket(copy, id)
                    if lines and next_one != bucket:
                        yield bucket, lines
                        lines = []
                    bucket = next_one
                if bucket >= end:
                    return
                lines.append(_line(name, data))
        raise Lost("the server ended the stream")

    def _stream(self, cursor: str, wanted: Filter) -> Generator[list[_Block], None, None]:
        """Yield the events after *cursor* as they arrive: their ids, names and data as text."""
        where = self.where
        subscription = Subscription(
            where.feed,
            tuple(sorted(wanted.types or ())),
            tuple(sorted(wanted.parents or ())),
            erasures=True,
            password=where.password,
        )
        url = operations_url(where.url, where.feed)
        connection = StreamRequest(url, cursor, subscription)
        with (
            connection.failures(),
            httpx.stream(**connection.request(), **connecting(url)) as answer,
        ):
            list(connection.opened(answer))
            rest = b""
            for chunk in answer.iter_bytes():
                complete, _, rest = (rest + chunk).rpartition(b"\n\n")
                if complete:
                    yield _BLOCK.findall(complete.decode() + "\n\n")
        raise Lost("the server ended the stream")


class _Patience:
    """The limit on repeated requests without new data."""

    def __init__(self) -> None:
        self._left, self._backoff = ATTEMPTS_MAX, Backoff()

    def wait(self, lost: Lost) -> None:
        self._left -= 1
        if self._left == 0:
            raise lost
        sleep(max(self._backoff.next_s(), lost.after_s))


def _repeat(call: Callable[[], T]) -> T:
    """Return the result of *call*; repeat it while the feed, or a proxy, does not answer."""
    return repeat(call, attempts_max=ATTEMPTS_MAX, on_lost=lambda *_: None, wait=sleep)


def _operations(blocks: list[_Block], seen: Place, last: Place) -> tuple[Piece, bool]:
    """Return the operations after *seen* up to *last*, and True if the read is complete."""
    lines: list[str] = []
    pages: list[int] = []
    slots: list[int] = []
    at_ms: list[int] = []
    low, high = (seen.page, seen.slot), (last.page, last.slot)
    ended = False
    for id, name, data in blocks:
        if name == LIVE:
            ended = True
            break
        slot = int(id[18:], 16) if len(id) == 24 else _COPYING
        if slot >= _COPYING:
            rule = "the log does not continue after the last page read"
            raise Gone(f"{rule}; the next page was removed")
        page = int(id[8:18], 16)
        if (page, slot) > high:
            ended = True
            break
        if (page, slot) > low:
            lines.append(_line(name, data))
            pages.append(page)
            slots.append(slot)
            at_ms.append(int(id[:8], 16) * 1000)
    return Piece(lines, pages, slots, at_ms), ended


def _bucket(copy: Replication, id: str) -> int:
    """Return the bucket of the row *id* in *copy*, or `BUCKETS` if *id* is after the last row."""
    cursor = parse(id)
    if isinstance(cursor, Place):
        return limits.BUCKETS
    if isinstance(cursor, Replication) and _start_of(cursor) == _start_of(copy):
        return cursor.bucket
    raise Gone(f"the copy from page {copy.page} cannot continue; the feed has started a new copy")


def _start_of(copy: Replication) -> Replication:
    """Return the start of the copy, without the position in it."""
    return replace(copy, bucket=0, part=0)


def _line(name: str, data: str) -> str:
    """Return an event as a line of the log: with its name, but without its address `ref`.

    An `erase` is a deletion with a mark at the end of the line.
    """
    if '"ref":' in data:
        data = _REF.sub("}", data)
    if name == ERASE:
        return f'{{"event":"delete",{data[1:-1]}{ERASURE_MARK}'
    return f'{{"event":"{name}",{data[1:]}'
