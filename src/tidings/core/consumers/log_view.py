"""Read the log for named consumers: its ends, ranges of entries, and the next entries to send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import ack_through
from tidings.core.errors import ConsumerFellOff, InvalidConsumer
from tidings.core.log.reader import PagesLost
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidings.core.consumers.consumer import Consumer
    from tidings.core.log.reader import Reader
    from tidings.core.model.cursors import Cursor
    from tidings.core.model.pages import Page


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log, its place, and the time of its commit."""

    place: Place
    line: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class LogView:
    """A read-only view of the log, which also checks positions.

    *lost* takes a feed and a cursor. It returns True if a reader with this cursor may have received
    operations that a restore of the log has lost.
    """

    reader: Reader
    lost: Callable[[str, Cursor], bool] = lambda feed, cursor: False

    def floor(self, feed: str) -> int:
        return self.reader.log.floor(feed)

    def frontier(self, feed: str) -> Place:
        return self.reader.frontier(feed, self.reader.checkpoints.checkpoints(feed).get(STATE, 0))

    def check_reached(self, feed: str, position: positions.Position, field: str) -> None:
        """Check that the log has reached *position*, and has not lost the page of *position*.

        Raises:
            InvalidConsumer: a restore has lost the page of *position*, or *position* is after the
                end of the log, so that it cannot be an id of this feed.
        """
        if self.lost(feed, position):
            rule = "names a page that was lost; begin with `copy`, or with an id that is in the log"
            raise InvalidConsumer(rule, field=field, value=positions.encode_position(position))
        page = positions.rank(position)[0]
        if page > self.reader.log.head(feed):
            rule = "is not an id of this feed, because it is after the end of the log"
            raise InvalidConsumer(rule, field=field, value=positions.encode_position(position))

    def check_within(self, consumer: Consumer) -> int:
        """Return the floor of the log.

        Raises:
            ConsumerFellOff: *consumer* needs a page below the floor.
        """
        floor = self.reader.log.floor(consumer.feed)
        if positions.fell_off(consumer.position, floor):
            handled = positions.last_unneeded_page(consumer.position)
            rule = (
                f"is at page {handled}, and the log begins with page {floor}; the pages between"
                " were removed. Move the consumer to `oldest`, or to `copy` to send every object"
                " again"
            )
            raise ConsumerFellOff(rule, field="consumer", value=consumer.name)
        return floor

    def check_entries(self, feed: str, entries: Sequence[Place]) -> None:
        """Check that all *entries* are in the log.

        Raises:
            InvalidConsumer: one of *entries* is not in the log, or *entries* are on too many pages.
        """
        numbers = {entry.page for entry in entries}
        if len(numbers) > limits.ACK_PAGES_MAX:
            rule = f"must be on at most {limits.ACK_PAGES_MAX} pages; use `through` for more"
            raise InvalidConsumer(rule, field="ids")
        pages = {number: self.reader.at(feed, number) for number in sorted(numbers)}
        for entry in entries:
            if line_at(pages[entry.page], entry) is None:
                raise InvalidConsumer("is not in the log", field="ids", value=entry.encode())

    def advance(self, consumer: Consumer, reads_max: int = limits.ADVANCE_READS_MAX) -> Consumer:
        """Move *consumer* past entries that are acknowledged or filtered out."""
        for page in self._pages(consumer, reads_max):
            entry = _first_open(consumer, page)
            if entry is None:
                consumer = ack_through(consumer, page.end)
            elif entry.place.slot == 0:
                return consumer
            else:
                return ack_through(consumer, replace(entry.place, slot=entry.place.slot - 1))
        return consumer

    def due(self, consumer: Consumer, count: int) -> list[Entry]:
        """Return the next entries to send to *consumer*, in order, *count* at most.

        The list is empty if these entries are after the pages that one request reads. `advance`
        then moves the position closer to the entries.
        """
        pages = self._pages(consumer, limits.ADVANCE_READS_MAX)
        return list(islice((each for page in pages for each in _open(consumer, page)), count))

    def upcoming(self, consumer: Consumer) -> Entry | None:
        """Return the next entry to send; if it is too far away, return the entry that failed."""
        pages = self._pages(consumer, limits.UPCOMING_READS_MAX)
        entries = (_first_open(consumer, page) for page in pages)
        return next((entry for entry in entries if entry), None) or self._failed_entry(consumer)

    def _failed_entry(self, consumer: Consumer) -> Entry | None:
        """Return the entry that the worker could not write, or None.

        `Failure` has the id of the entry. A search from the position might not reach the entry,
        because the filter may exclude many pages before it.
        """
        place, position = (
            positions.read(consumer.failure.id if consumer.failure else None),
            consumer.position,
        )
        if not isinstance(place, Place) or positions.rank(place) <= positions.rank(position):
            return None
        page = self.reader.at(consumer.feed, place.page)
        line = line_at(page, place)
        done = positions.in_spans(consumer.acked, place)
        return None if page is None or line is None or done else Entry(place, line, page.at_ms)

    def entries(self, feed: str, first: Place, last: Place | None, limit: int) -> list[Entry]:
        """Return the entries from *first* to *last*, up to *limit* and the size of a response."""
        entries: list[Entry] = []
        size = 0
        for entry in self._from(feed, first):
            size += len(entry.line)
            if last is not None and positions.rank(entry.place) > positions.rank(last):
                break
            if len(entries) == limit or (entries and size > limits.LOG_BYTES_MAX):
                break
            entries.append(entry)
        return entries

    def oldest(self, feed: str) -> Entry | None:
        """Return the first entry of the log, or None if it has no entries."""
        return next(self._from(feed, Place(self.reader.log.floor(feed), 0, 0)), None)

    def current(self, feed: str) -> Place | None:
        """Return the place of the last entry; None if the last pages are empty or missing."""
        number = self.frontier(feed).page
        for _ in range(limits.ADVANCE_READS_MAX):
            page = self.reader.at(feed, number)
            if page is None:
                return None
            if page.lines:
                return Place(number, page.last_slot, page.seconds)
            number -= 1
        return None

    def _from(self, feed: str, first: Place) -> Iterator[Entry]:
        after = max(first.page, self.reader.log.floor(feed)) - 1
        while True:
            try:
                run = self.reader.read(feed, after, limits.ACK_PAGES_MAX)
            except PagesLost as lost:  # continue with the existing pages, as after trimmed pages
                after = lost.beyond - 1
                continue
            for page in run.pages:
                for slot, line in page.entries():
                    place = Place(page.number, slot, page.seconds)
                    if positions.rank(place) >= positions.rank(first):
                        yield Entry(place, line, page.at_ms)
            if not run.more:
                return
            after = run.pages[-1].number

    def _pages(self, consumer: Consumer, reads_max: int) -> Iterator[Page]:
        """Yield the pages after the position; none while *consumer* receives a copy."""
        if consumer.position is not None and not isinstance(consumer.position, Place):
            return
        floor = self.check_within(consumer)
        handled = positions.last_unneeded_page(consumer.position) or 0
        after = max(handled, floor - 1)
        left, limit = reads_max * limits.ADVANCE_PAGES, limits.ADVANCE_PAGES_FIRST
        while left > 0:
            limit = min(left, limit)
            try:
                run = self.reader.read(consumer.feed, after, limit)
            except PagesLost as lost:
                if after > max(handled, floor - 1):
                    return  # use the pages that were read; the next request reports the lost pages
                raise _needs(consumer, lost) from lost
            yield from run.pages
            if not run.more:
                return
            after, left, limit = run.pages[-1].number, left - limit, limits.ADVANCE_PAGES


def _needs(consumer: Consumer, lost: PagesLost) -> ConsumerFellOff:
    rule = (
        f"needs the pages {lost.first} to {lost.beyond - 1}, which are lost. Move the consumer to a"
        " later id, or to `copy` to send every object again"
    )
    return ConsumerFellOff(rule, field="consumer", value=consumer.name)


def line_at(page: Page | None, place: Place) -> str | None:
    """Return the line of *page* at *place*; None if *page* has no such entry."""
    if page is None or page.seconds != place.seconds:
        return None
    return page.at(place.slot)


def _first_open(consumer: Consumer, page: Page) -> Entry | None:
    return next(_open(consumer, page), None)


def _open(consumer: Consumer, page: Page) -> Iterator[Entry]:
    """Yield the entries of *page* that must be sent to *consumer* and are not acknowledged yet."""
    filtered, position = consumer.filter, consumer.position
    first = 0
    if isinstance(position, Place) and position.page == page.number:
        first = position.slot + 1
    takes_all = filtered.is_everything
    for slot, line in page.entries(first):
        place = Place(page.number, slot, page.seconds)
        if not (takes_all or filtered.matches(parse_line(line))):
            continue
        if not positions.in_spans(consumer.acked, place):
            yield Entry(place, line, page.at_ms)
