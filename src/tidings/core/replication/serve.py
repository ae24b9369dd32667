"""Serve the pages of a feed, and the rows of its state, to the feeds that copy it.

A reply has as many whole pages as fit, in order, with their numbers. If a selection leaves out all
operations of a page, the page is sent empty, so that the copy has every page number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.errors import (
    InvalidCursor,
    InvalidPagesRequest,
    LogFellOff,
    OtherLog,
    parse_field,
)
from tidings.core.log.reader import PagesLost
from tidings.core.model import cursors, filters
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import parse_line, seek
from tidings.core.newest import Newest
from tidings.core.replication.source import ALL, Selection, parse_share, select
from tidings.core.replication.wire import ReplicationBatch, Rows, UpstreamStatus, encode_batch
from tidings.core.settings.profiles import hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.catchup.catchup import CatchUp
    from tidings.core.model.pages import Page
    from tidings.core.replication.copies import CopiedLosses
    from tidings.core.state.removed_parents import RemovedBySlot
    from tidings.core.state.rows import Row

    Query = Mapping[str, Sequence[str]]


_BLOCK_MAX = 2**32 - 1  # seconds of waiting that a caller may request; the actual wait is shorter


@dataclass(frozen=True, slots=True)
class PagesRequest:
    """A request for pages after *after*. The reply has at most *size* bytes.

    If the log has no pages after *after*, the reply is delayed up to *block_s* seconds.
    """

    after: Place = START
    selection: Selection = ALL
    size: int = limits.BATCH_BYTES
    block_s: int = 0


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A request for rows of *bucket* after the key *after*."""

    bucket: int
    after: str | None = None
    selection: Selection = ALL


def parse_pages_request(query: Query) -> PagesRequest:
    """Parse the query string of a request for pages; the first value of each name counts.

    Raises:
        InvalidPagesRequest, InvalidCursor, InvalidFilter: a value breaks its rule.
    """
    return PagesRequest(
        _place(_text(query, "after")),
        _selection(query),
        _number(query, "size", limits.BATCH_BYTES, 1, limits.BATCH_BYTES_MAX),
        min(_number(query, "block", 0, 0, _BLOCK_MAX), limits.BATCH_BLOCK_S_MAX),
    )


def parse_rows_request(query: Query) -> RowsRequest:
    """Parse the query string of a request for rows; the first value of each name counts.

    Raises:
        InvalidPagesRequest, InvalidFilter: a value breaks its rule.
    """
    after = _text(query, "after")
    if len(after.encode(errors="replace")) > limits.STATE_KEY_BYTES_MAX:
        rule = f"must be a key of at most {limits.STATE_KEY_BYTES_MAX} bytes"
        raise InvalidPagesRequest(rule, field="after", value=after)
    bucket = _number(query, "bucket", -1, 0, limits.BUCKETS - 1)
    return RowsRequest(bucket, after or None, _selection(query))


def _selection(query: Query) -> Selection:
    """Parse a selection.

    A selection with parents also includes operations that remove these parents from an object, so
    that the copy removes the object.
    """
    named = {name: _text(query, name) for name in filters.FIELDS}
    chosen = filters.from_query(named | {"leave": "true" if named["parents"] else None})
    return Selection(chosen, parse_share(_text(query, "share")))


def _place(text: str) -> Place:
    if not text:
        return START
    place = cursors.parse_cursor(text)
    if not isinstance(place, Place) or place.slot != PAGE_END:
        rule = f"must be the end of a page: an event id that ends with {PAGE_END:06x}"
        raise InvalidCursor(rule, field="after", value=text)
    return place


def _number(query: Query, name: str, default: int, least: int, most: int) -> int:
    text = _text(query, name)
    if not text and default >= least:
        return default
    return parse_field(text, name, least, most, InvalidPagesRequest)


def _text(query: Query, name: str) -> str:
    return (query.get(name) or [""])[0]


@dataclass(slots=True)
class ReplicationReader:
    """A reader of pages and rows of any feed, including a feed that is a copy itself.

    The position in a request is compared with the page in the log. The last valid position of each
    feed is cached, so that this comparison needs no read for readers at the end of the log.
    """

    catch_up: CatchUp
    losses: CopiedLosses
    _valid: Newest[str, Place] = field(default_factory=Newest)

    def pages(self, feed: str, after: Place, selection: Selection, size: int) -> ReplicationBatch:
        """Return the pages after *after*, in at most *size* bytes.

        Raises:
            LogFellOff: the log does not go back to *after*.
            OtherLog: the page of *after* was lost, never written, or committed at another second.
        """
        status = self.status(feed)
        if hit(after, status.lost):
            raise OtherLog("is a page that was lost", field="after", value=after.encode())
        if after.page + 1 < status.floor:
            raise LogFellOff(after.page, status.floor)
        valid = after.page < status.floor or after.seconds == 0 or self._valid.get(feed) == after
        first = after.page if valid else after.page - 1
        # Removed parents are known up to the last page that the state contains.
        most = limits.BATCH_PAGES_MAX + after.page - first
        count = min(most, status.state - first) if selection.filter.leave else most
        try:
            run = self.catch_up.reader.read(feed, first, count) if count > 0 else None
        except PagesLost as lost:
            raise LogFellOff(after.page, lost.beyond) from lost
        if run is not None and run.trimmed:  # the pages were trimmed after the status was read
            return self.pages(feed, after, selection, size)
        pages = _with_known_parents(status, selection, run.pages) if run is not None else []
        if pages and not valid:
            page = pages.pop(0)
            if (page.number, page.seconds) != (after.page, after.seconds):
                rule = f"is of another log: page {page.number} here ends with {page.end.encode()}"
                raise OtherLog(rule, field="after", value=after.encode())
            self._valid[feed] = after
            if run is not None and run.more and not pages:  # only the checked page was read
                return self.pages(feed, after, selection, size)
        if not pages:
            status = replace(status, ended=self._has_ended(feed, status, after))
        elif pages[-1].number > status.head:
            status = replace(status, head=pages[-1].number)
        return self._fill(feed, status, pages, selection, size)

    def rows(self, feed: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        """Return the rows of *bucket* after the key *after*, as many as a reply holds.

        The reply continues after a row of the selected types, or before all rows of such a type, so
        that it names no object outside the bound of the reader's key.
        """
        # Read the status before the rows, so that the rows include all pages up to `status.state`.
        status, types = self.status(feed), selection.filter.types
        wanted: list[Row] = []
        size, place = 0, seek(types, after or "")
        while place is not None and size < limits.BATCH_BYTES:
            rows = self.catch_up.states.read(feed, bucket, place or None)
            wanted += [row for row in rows if wants(selection, row)]
            size += sum(len(row.key) + len(row.line) for row in rows)
            place = seek(types, rows[-1].key) if rows else None
        return Rows(status, tuple(wanted), place)

    def status(self, feed: str) -> UpstreamStatus:
        """Return the status of *feed*.

        The head in the status is the last page that any follower has handled, or the last copied
        page of a chained feed.
        """
        floor = self.catch_up.reader.log.floor(feed)
        checkpoints = self.catch_up.reader.checkpoints.checkpoints(feed)
        head = max([floor - 1, *checkpoints.values()])
        state = checkpoints.get(STATE, 0)
        relay, lost = self.losses.relay(feed), self.losses.ranges(feed)
        if relay is None:
            now = self.catch_up.reader.clock()
            return UpstreamStatus(floor, head, state, master_read_ms=now, lost=lost)
        master = relay.master or self.losses.copies[feed].url
        via = relay.via or ((relay.id,) if relay.id else ())
        read_ms = relay.master_read_ms
        return UpstreamStatus(
            floor=floor,
            head=relay.checkpoint,
            state=state,
            master=master,
            via=via,
            master_read_ms=read_ms,
            lost=lost,
        )

    def _has_ended(self, feed: str, status: UpstreamStatus, after: Place) -> bool:
        """Return True if *feed* has yielded and has no page after *after*, finished or not."""
        if status.master:
            return False
        counter = self.catch_up.reader.log.log_counter(feed)
        if after.page > counter.page:
            rule = f"is beyond the end of this log, which is page {counter.page}"
            raise OtherLog(rule, field="after", value=after.encode())
        return counter.successor != "" and status.head >= counter.page

    def _fill(
        self,
        feed: str,
        status: UpstreamStatus,
        pages: Sequence[Page],
        selection: Selection,
        size: int,
    ) -> ReplicationBatch:
        removed_parents, leave = self.catch_up.removed_parents_reader, selection.filter.leave
        removed = removed_parents.by_page(feed, pages if leave else ())
        fitting: list[Page] = []
        room, filtered = size - _head_bytes(status), 0
        for page in pages:
            chosen, out = _select(page, selection, removed.get(page.number))
            weight = len(segments.text_of([chosen]).encode())
            if weight > room:
                pending = 0 if fitting else weight + _head_bytes(status)
                return ReplicationBatch(status, tuple(fitting), pending, filtered)
            fitting.append(chosen)
            room, filtered = room - weight, filtered + out
        return ReplicationBatch(status, tuple(fitting), 0, filtered)


def wants(selection: Selection, row: Row) -> bool:
    """Return True if a copy of *selection* needs *row*.

    A tombstone does not show which parents the object had before. Every copy that may have the
    object therefore needs the tombstone.
    """
    if selection.share is not None and not selection.share.holds(row.key):
        return False
    wanted = replace(selection.filter, parents=None) if row.deleted else selection.filter
    return wanted.is_everything or wanted.matches(parse_line(row.line))


def _with_known_parents(
    status: UpstreamStatus, selection: Selection, pages: list[Page]
) -> list[Page]:
    """Return *pages*, without pages for which removed parents are needed, but not known yet."""
    if not selection.filter.leave:
        return pages
    return [page for page in pages if page.number <= status.state]


def _select(page: Page, selection: Selection, removed: RemovedBySlot | None) -> tuple[Page, int]:
    """Return the selected part of *page*, unpacked, and the number of operations left out.

    Operations outside the bound of the reader's key are not counted.
    """
    if selection.is_everything:
        return replace(page, body=page.text), 0
    chosen = select(page, selection, removed)
    return chosen, sum(map(selection.is_within_bound, page.lines)) - len(chosen.lines)


def _head_bytes(status: UpstreamStatus) -> int:
    """Return the maximum size of the first line of a reply."""
    largest = limits.BATCH_PAGES_MAX * limits.REQUEST_OPERATIONS_MAX
    line = encode_batch(
        ReplicationBatch(status, pending=2 * limits.BATCH_BYTES_MAX, filtered=largest)
    )
    return len(line.encode()) + len(str(limits.BATCH_PAGES_MAX))
