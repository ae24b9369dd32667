"""List the changes after an id, up to the size of a reply.

An entry is a line of the log, in changeagent's JSON. A reply has a maximum number of entries and of
bytes; entries that the client did not request do not count. `next` in the reply is the id after
which the next request continues. If the client filters by tags, the tag index shows which pages
need not be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.changeagent.changes import (
    ID_MAX,
    end_of,
    entry_of,
    may_hold,
    number_of,
    place_of,
    tags_of,
)
from tidings.core.errors import BelowFloor, InvalidChange, UnknownChange, parse_integer
from tidings.core.log.reader import PagesLost
from tidings.core.model.cursors import Place
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.operations import parse_line
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidings.core.changeagent.tag_index import TagStore
    from tidings.core.effects import Clock
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import Losses

_GROWTH = 4  # each read is this many times as large as the previous read


@dataclass(frozen=True, slots=True)
class Query:
    """The request of a client. Without *tags* it selects all entries of *bound*.

    *bound* is the part of the feed that the client may read. *block_s* is the maximum wait for new
    entries. If *strict* is True, the request fails if entries after *since* are gone.
    """

    since: int = 0
    limit: int = limits.CHANGES_LIMIT
    block_s: int = 0
    tags: frozenset[str] = frozenset()
    strict: bool = False
    bound: Filter = EVERYTHING

    @property
    def is_selective(self) -> bool:
        return bool(self.tags) or not self.bound.is_everything

    @property
    def waits(self) -> bool:
        """Return True if the client accepts a wait for new entries."""
        return self.block_s > 0 and self.limit > 0


@dataclass(frozen=True)
class Listing:
    """A reply. It may be for several clients, so its JSON is built once.

    *entries* are JSON objects. *page* is the last page that was read; it is never after the
    frontier. *waiting* is True if the page after *page* is a hole: it is missing, although later
    pages exist. *lost* is True if the client may have received entries that a restore of the log
    has lost. *read* is the size of the pages that were read, as `limits.KEY_READ_SIZE` counts it.
    """

    entries: Sequence[str]
    at_start: bool
    at_end: bool
    floor: int
    head: int
    next: int
    page: int
    waiting: bool = False
    lost: bool = False
    read: int = 0

    @property
    def is_full(self) -> bool:
        """Return True if more entries may follow, so that the client should continue."""
        return bool(self.entries) and not self.at_end

    def to_json(self) -> str:
        """Return the reply in JSON."""
        return self._json

    @cached_property
    def _json(self) -> str:
        flags = [str(flag).lower() for flag in (self.at_start, self.at_end)]
        lost = ',"lost":true' if self.lost else ""
        return (
            f'{{"changes":[{",".join(self.entries)}],"atStart":{flags[0]},"atEnd":{flags[1]},'
            f'"floor":{self.floor},"head":{self.head},"next":{self.next}{lost}}}'
        )


def parse(query: Mapping[str, Sequence[str]]) -> Query:
    """Parse *query*, which has the values of each name in a query string.

    All values of `tag` count. If another name is repeated, only its first value counts.

    Raises:
        InvalidChange: a value breaks its rule.
    """
    given = query.get("tag", ())
    if len(set(given)) > limits.FILTER_VALUES_MAX:
        raise InvalidChange(f"Invalid tag: more than {limits.FILTER_VALUES_MAX} tags")
    return Query(
        since=_integer(query, "since", 0, ID_MAX),
        limit=_integer(query, "limit", limits.CHANGES_LIMIT, limits.CHANGES_LIMIT_MAX),
        block_s=_integer(query, "block", 0, limits.CHANGES_LIMIT_MAX),
        tags=frozenset(given),
        strict=_switch(query, "strict"),
    )


def _integer(query: Mapping[str, Sequence[str]], name: str, default: int, most: int) -> int:
    text = (query.get(name) or [""])[0]
    try:
        return parse_integer(text, 0, most) if text else default
    except ValueError:
        raise InvalidChange(f"Invalid {name}", value=text) from None


def _switch(query: Mapping[str, Sequence[str]], name: str) -> bool:
    text = (query.get(name) or ["false"])[0]
    if text not in ("true", "false"):
        raise InvalidChange(f"Invalid {name}", value=text)
    return text == "true"


@dataclass(slots=True)
class Scan:
    """The entries of one reply, which are taken from pages in order.

    The scan continues after the id *next*. *full* is True if the next matching entry does not fit.
    *page* is the last page that was read completely or skipped; *head* is the id of the last entry
    of the last page that was read completely, or 0. *read* is the size of all pages that were read.
    """

    query: Query
    next: int
    page: int
    entries: list[str] = field(default_factory=list)
    full: bool = False
    head: int = 0
    read: int = 0
    _size: int = 0
    _pages: int = 0

    def wanting(self) -> int:
        """Estimate how many more pages the reply needs, from the entries per page so far."""
        if self.query.is_selective or not self.entries:
            return limits.READ_ITEMS_MAX
        rest = self.query.limit + 1 - len(self.entries)
        return -(-rest * self._pages // len(self.entries))

    def show(self, pages: Iterable[Page]) -> None:
        """Add the matching entries of *pages* until the scan is `full`."""
        for page in pages:
            self.read += page.size
            if not self.full:
                self._take(page)

    def _take(self, page: Page) -> None:
        """Add all matching entries of *page* that fit."""
        self._pages += 1
        tags = self.query.tags
        may_be = not tags or may_hold(page.text, tags)
        if may_be and self.query.bound.may_match(page.text):
            for slot, line in page.entries():
                number = number_of(page.number, slot)
                if number > self.next and self._wants(line):
                    self._add(entry_of(line, number=number, at_ms=page.at_ms), number)
                if self.full:
                    return
        self.skip(page.number)
        self.head = _last(page)

    def skip(self, page: int) -> None:
        """Continue after *page*, which has no more matching entries."""
        self.next, self.page = max(self.next, end_of(page)), page

    def _wants(self, line: str) -> bool:
        tags, bound = self.query.tags, self.query.bound
        if tags and tags.isdisjoint(tags_of(line)):
            return False
        return bound.is_everything or bound.matches(parse_line(line))

    def _add(self, entry: str, number: int) -> None:
        size = self._size + len(entry.encode()) + 1
        count = len(self.entries)
        if count == self.query.limit or (count and size > limits.CHANGES_BYTES_MAX):
            self.full, self.next = True, max(self.next, number - 1)
            return
        self.entries.append(entry)
        self._size = size


@dataclass(slots=True)
class Lister:
    """The service that lists the changes of feeds.

    An id after the end of a chained feed may come from its upstream. The head of each feed is
    cached for `limits.HEAD_AGE_MS`.
    """

    reader: Reader
    steady: Clock
    index: TagStore
    losses: Losses
    _heads: Newest[str, tuple[int, int]] = field(default_factory=Newest)

    def list(self, feed: str, query: Query) -> Listing:
        """Return the entries of *feed* that *query* selects, without waiting for new entries.

        Raises:
            BelowFloor: the page after `query.since` is lost. Or *query* is strict, and its id is
                below the floor or in a page that a restore has lost.
        """
        lost = self._has_lost(feed, query.since)
        floor = self.reader.log.floor(feed)
        gone = end_of(floor - 1)
        if query.strict and query.since < gone:
            raise BelowFloor(query.since, gone)
        if query.strict and lost:
            raise BelowFloor(query.since, gone, "names a page that was lost; start again")
        first = max(place_of(query.since)[0], floor) - 1
        scan = Scan(query, max(query.since, gone), max(0, first))
        reached, waiting = self._read(feed, scan)
        head = self._head(feed, scan, reached=reached, gone=gone)
        return Listing(
            scan.entries,
            at_start=query.since < number_of(floor, 0),
            at_end=reached and not waiting,
            floor=gone,
            head=head,
            next=scan.next,
            page=scan.page if scan.head else min(scan.page, place_of(head)[0]),
            waiting=waiting,
            lost=lost,
            read=scan.read,
        )

    def _has_lost(self, feed: str, since: int) -> bool:
        """Return True if *since* is an id of a page that the log once had and then lost."""
        page, slot = place_of(since)
        if self.losses(feed, Place(page, slot, seconds=0)):
            return True
        _, known = self._heads.get(feed, (0, 0))
        is_new = since > known and not self.losses.is_copy(feed)
        return is_new and page > self.reader.log.head(feed)

    def one(self, feed: str, number: int, bound: Filter = EVERYTHING) -> str:
        """Return the change with the id *number*, in JSON.

        Raises:
            UnknownChange: the change is not in the log, or is outside of *bound*.
        """
        page_number, slot = place_of(number)
        page = None
        if page_number >= self.reader.log.floor(feed):
            page = self.reader.at(feed, page_number)
        line = page.at(slot) if page is not None else None
        if page is None or line is None or not bound.matches(parse_line(line)):
            raise UnknownChange("Not found", value=number)
        return entry_of(line, number=number, at_ms=page.at_ms)

    def _read(self, feed: str, scan: Scan) -> tuple[bool, bool]:
        """Fill *scan*; return whether it reached the end, and whether a hole is there."""
        until = self.steady() + limits.CHANGES_SCAN_MS
        if scan.query.tags:
            self._read_by_index(feed, scan, until)
        size = limits.CHANGES_FIRST_PAGES
        while not scan.full and self.steady() < until:
            try:
                run = self.reader.read(feed, scan.page, size)
            except PagesLost as lost:
                gone = end_of(lost.beyond - 1)
                if scan.next > scan.query.since:
                    # Return the entries before the lost pages. The next request fails.
                    return False, False
                if scan.query.since < gone:
                    raise BelowFloor(scan.query.since, gone) from lost
                scan.skip(lost.beyond - 1)
                continue
            scan.show(run.pages)
            if run.trimmed:
                scan.skip(run.floor - 1)
            elif not (run.more or scan.full or (run.waiting and run.pages)):
                return True, run.waiting
            size = max(1, min(size * _GROWTH, scan.wanting(), limits.READ_ITEMS_MAX))
        return False, False

    def _read_by_index(self, feed: str, scan: Scan, until: int) -> None:
        """Read up to the last summary; skip the pages of summaries that exclude the tags."""
        size = limits.CHANGES_FIRST_SUMMARIES
        while not scan.full and self.steady() < until:
            summaries = self.index.read(feed, scan.page, size)
            if not summaries:
                return
            for summary in summaries:
                self._read_to(feed, scan, summary.first - 1)
                if summary.may_hold(scan.query.tags):
                    self._read_to(feed, scan, summary.last)
                elif not scan.full:
                    scan.skip(summary.last)
            size = min(size * _GROWTH, limits.READ_ITEMS_MAX)

    def _read_to(self, feed: str, scan: Scan, last: int) -> None:
        """Read committed pages up to page *last*; skip pages that are trimmed in the meantime."""
        while not scan.full and scan.page < last:
            run = self.reader.read(feed, scan.page, last - scan.page)
            if not run.pages:
                scan.skip(min(last, max(scan.page + 1, run.floor - 1)))
            scan.show(run.pages)

    def _head(self, feed: str, scan: Scan, *, reached: bool, gone: int) -> int:
        """Return the id of the last readable entry, or of an entry shortly before it.

        Never return the id of an entry that is not readable yet, because a reader that starts after
        such an id would miss the entries before it.
        """
        now = self.reader.clock()
        made_ms, known = self._heads.get(feed, (0, 0))
        if reached and scan.head:
            self._heads[feed] = (now, max(known, scan.head))
        elif not 0 <= now - made_ms < limits.HEAD_AGE_MS or not known:
            # If the end was reached, `scan.page` may be after the end, because the client's id may
            # be after the end.
            page = 0 if reached else scan.page
            self._heads[feed] = (now, max(known, self._look(feed, page)))
        return max(gone, self._heads[feed][1])

    def _look(self, feed: str, page: int) -> int:
        newest = max([page, *self.reader.checkpoints.checkpoints(feed).values()])
        run = self.reader.read(feed, max(0, newest - 1), limits.HEAD_PAGES_MAX)
        if not run.pages:
            return 0
        last = run.pages[-1]
        return _last(last)


def _last(page: Page) -> int:
    """Return the id of the last entry of *page*; if *page* is empty, return its `end_of`."""
    return number_of(page.number, page.last_slot) if page.lines else end_of(page.number)


def extend_listing(listing: Listing, query: Query, pages: Sequence[Page]) -> Listing:
    """Return *listing*, which has no entries, with the entries of the *pages* that follow it."""
    scan = Scan(query, listing.next, listing.page)
    scan.show(pages)
    return replace(
        listing,
        entries=scan.entries,
        at_end=not scan.full,
        head=max(listing.head, scan.head),
        next=scan.next,
        page=scan.page,
        waiting=False,
    )
