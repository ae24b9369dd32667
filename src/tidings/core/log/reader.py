"""
Reading: the contiguous prefix of the log, and what a missing number means.

A missing number above the floor is a writer in flight: readers stop before it. Once a later
page is older than a short grace, a reader that may write closes the hole with a filler; the
late writer then loses the race. Below the floor it is history, reported as `trimmed`. A number that
a follower has handled, or that is missing for longer than a page may live at least, was a page
and is lost: that is an error to every reader, and never filled.

Far from the end of the log, reads are eventually consistent: half the price, and no load on the
one replica that followers and writers need. Pages never change, so what such a read found is
right. What it did not find means nothing: neither an end nor a hole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import TidingsError
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.model.pages import Page, filler

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from tidings.core.effects import Clock, Count
    from tidings.core.log.stores import Checkpoints, LogStore, TrimStore


class Gap(Enum):
    """Why the next number is missing although a later page exists."""

    IN_FLIGHT = "in flight"
    OVERDUE = "overdue"
    LOST = "lost"
    TRIMMED = "trimmed"


class PagesLost(TidingsError):
    """Pages from *first* on are gone above the floor; *beyond* is there. Never skipped."""

    def __init__(self, *, feed: str, first: int, beyond: int) -> None:
        self.first, self.beyond = first, beyond
        super().__init__(f"{feed}: the pages {first} to {beyond - 1} are gone, above the floor")


@dataclass(frozen=True, slots=True)
class Run:
    """
    Pages that follow each other without a hole.

    *waiting*: a hole comes next. *trimmed*: the next page is below *floor*, for ever gone.
    *more*: the read was cut short, there may be pages behind.
    """

    pages: list[Page]
    waiting: bool = False
    more: bool = False
    trimmed: bool = False
    floor: int = 0


def contiguous(pages: Sequence[Page], after: int) -> int:
    """Return how many of *pages* follow *after* without a hole."""
    for count, page in enumerate(pages):
        if page.first > after + 1:
            return count
        after = page.number
    return len(pages)


def judge(missing: int, beyond: Page, *, floor: int, handled: int, now_ms: int) -> Gap:
    """What the *missing* number is, given the next page *beyond* it and what was *handled*."""
    if missing < floor:
        return Gap.TRIMMED
    if missing <= handled or now_ms - beyond.at_ms >= limits.HOLE_LOST_MS:
        return Gap.LOST
    return Gap.OVERDUE if now_ms - beyond.at_ms >= limits.HOLE_GRACE_MS else Gap.IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Reader:
    """
    Reads and waits; never writes. *checkpoints* tell which pages there certainly were, *ends*
    where this process found the end of each feed's log last.
    """

    log: LogStore
    trim: TrimStore
    checkpoints: Checkpoints
    clock: Clock
    count: Count
    ends: dict[str, int] = field(default_factory=dict)

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        """
        What follows page *after*, as far as there is no hole.

        Raises:
            PagesLost: the next page is gone, above the floor.
        """
        if self._is_near(feed, after, limit):
            return self._read(feed, after, limit, [])
        batch = self.log.read(feed, after, limit, eventual=True)
        pages = batch[: contiguous(batch, after)]
        if pages and batch.more and len(pages) == len(batch):
            return Run(pages, more=True)
        if batch and not pages and after + 1 < (floor := self.trim.floor(feed)):
            return Run([], trimmed=True, floor=floor)  # or all behind it would be read in vain
        return self._read(feed, after, limit, pages)

    def _is_near(self, feed: str, after: int, limit: int | None) -> bool:
        """Whether the end is as likely as not, or so little is asked for that it costs the same."""
        if limit is not None and limit <= limits.NEAR_PAGES:
            return True
        return feed in self.ends and abs(after - self.ends[feed]) <= limits.NEAR_PAGES

    def _read(self, feed: str, after: int, limit: int | None, known: list[Page]) -> Run:
        """As `read`, strongly consistent behind what is *known* to follow."""
        reached = known[-1].number if known else after
        batch = self.log.read(feed, reached, limit and limit - len(known))
        pages = [*known, *batch]
        count = contiguous(pages, after)
        waiting = count < len(pages)
        more = batch.more and not waiting
        self._remember(feed, None if more else pages[count - 1].number if count else after)
        if count:
            return Run(pages[:count], waiting=waiting, more=more)
        floor = self.trim.floor(feed)
        if after + 1 < floor:
            return Run([], trimmed=True, floor=floor)
        if pages and self.gap(feed, after + 1, pages[0]) is Gap.LOST:
            self.count("PagesLost", pages[0].first - after - 1)
            raise PagesLost(feed=feed, first=after + 1, beyond=pages[0].first)
        return Run([], waiting=waiting, floor=floor)

    def _remember(self, feed: str, end: int | None) -> None:
        """Where a log that grows all the time ends is forgotten: it is far away."""
        if end is None:
            self.ends.pop(feed, None)
        else:
            self.ends[feed] = end

    def read_until(self, feed: str, after: int, until: int) -> Run:
        """
        Return what follows page *after* up to page *until*.

        Raises:
            PagesLost: see `read`.
        """
        run = self.read(feed, after, until - after)
        pages = [page for page in run.pages if page.number <= until]
        ends = bool(run.pages) and (len(pages) < len(run.pages) or pages[-1].number == until)
        return replace(run, pages=pages, more=run.more and not ends)

    def read_on(self, feed: str, after: int, limit: int | None = None) -> Run:
        """As `read`, for who goes another way: what is lost is reported as given up."""
        try:
            return self.read(feed, after, limit)
        except PagesLost as lost:
            return Run([], trimmed=True, floor=lost.beyond)

    def gap(self, feed: str, missing: int, beyond: Page) -> Gap:
        """
        What the *missing* number is, given the next page *beyond* it.

        The floor is read last: what was given up meanwhile is history. So is the page where it
        seems lost: it may have been written, and handled, since it was missed.
        """
        handled = max(self.checkpoints.checkpoints(feed).values(), default=0)
        now_ms, floor = self.clock(), self.trim.floor(feed)
        gap = judge(missing, beyond, floor=floor, handled=handled, now_ms=now_ms)
        return Gap.IN_FLIGHT if gap is Gap.LOST and self.at(feed, missing) else gap

    def at(self, feed: str, number: int) -> Page | None:
        """The page *number*, if it is in the log."""
        page = self.next(feed, number) if number > 0 else None
        return page if page and page.number == number else None

    def next(self, feed: str, number: int) -> Page | None:
        """The page *number*, or the first one behind it that is in the log."""
        pages = self.log.read(feed, number - 1, 1)
        return pages[0] if pages else None

    def frontier(self, feed: str, hint: int) -> Place:
        """
        The end of the contiguous prefix; *hint* is a page known to be in it, or 0.

        Where everything was trimmed there is no page left to tell its second: 0.
        """
        *_, (place, _) = self.walk(feed, hint)
        return place

    def walk(self, feed: str, hint: int) -> Iterator[tuple[Place, bool]]:
        """
        The way to the frontier from *hint*, a place a read; True with the last one.

        Pages that are lost end it, as a writer in flight does.
        """
        place, after, reached = START, max(0, hint - 1), False
        while not reached:
            try:
                run = self.read(feed, after)
            except PagesLost:
                run = Run([])
            if run.pages:
                place = run.pages[-1].end
            elif run.trimmed:
                place = Place(run.floor - 1, PAGE_END, seconds=0)
            goes_on = run.more or run.waiting if run.pages else run.trimmed
            after, reached = place.page, not goes_on
            yield place, reached


@dataclass(frozen=True, slots=True)
class Filler:
    """
    Closes overdue holes. Only followers have it: they alone may write to the log.

    But for that of a feed that is *chained*: it has no writer whose number could be lost.
    """

    reader: Reader
    page_ms: int
    chained: Container[str] = ()

    def close_hole(self, feed: str, after: int) -> bool:
        """Fill the hole behind page *after* if it is overdue; True when the log moved on."""
        beyond = self.reader.next(feed, after + 1)
        if beyond is None or beyond.first <= after + 1:
            return beyond is not None
        gap = self.reader.gap(feed, after + 1, beyond)
        if feed in self.chained or gap is not Gap.OVERDUE:
            return False
        expires_ms = self.reader.clock() + self.page_ms
        for number in range(after + 1, beyond.first):
            # As old as what follows it: a cursor on it falls back by when its writer died.
            page = filler(number, at_ms=beyond.at_ms, expires_ms=expires_ms)
            if self.reader.log.put(feed, page) == page.append_id:
                self.reader.count("HolesFilled", 1)
        return True
