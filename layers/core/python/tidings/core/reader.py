"""
Reading: the contiguous prefix of the log, and what a missing number means.

A missing number above the floor is a writer in flight: readers stop before it. Once a later
page is older than a short grace, a reader that may write closes the hole with a filler; the
late writer then loses the race. Below the floor it is history, told as `trimmed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from . import limits
from .cursors import PAGE_END, START, Place
from .pages import Page, filler

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from .ports import Clock, Count, LogStore, TrimStore

_PAGE_OVERHEAD_BYTES = 80  # names and numbers of an item, at the least


class Gap(Enum):
    """Why the next number is missing although a later page exists."""

    IN_FLIGHT = "in flight"
    OVERDUE = "overdue"
    TRIMMED = "trimmed"


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
    """How many of *pages* follow *after* without a hole."""
    count = 0
    for count, page in enumerate(pages, 1):
        if page.number != after + count:
            return count - 1
    return count


def judge(missing: int, beyond: Page, *, floor: int, now_ms: int) -> Gap:
    """What the *missing* number is, given the next page *beyond* it."""
    if missing < floor:
        return Gap.TRIMMED
    return Gap.OVERDUE if now_ms - beyond.at_ms >= limits.HOLE_GRACE_MS else Gap.IN_FLIGHT


def _cut(pages: Sequence[Page], limit: int | None) -> bool:
    """Whether a read may have ended before the log did."""
    if len(pages) == limit:
        return True
    # A character is at most four bytes, so a quarter of the bound is the least a full read has.
    weight = sum(len(page.body) for page in pages) + _PAGE_OVERHEAD_BYTES * len(pages)
    return weight >= limits.READ_PAGES_BYTES_MAX // 4


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads and waits; never writes."""

    log: LogStore
    trim: TrimStore

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        """What follows page *after*, as far as there is no hole."""
        pages = self.log.read(feed, after, limit)
        count = contiguous(pages, after)
        if count:
            waiting = count < len(pages)
            return Run(pages[:count], waiting=waiting, more=not waiting and _cut(pages, limit))
        floor = self.trim.floor(feed)
        if after + 1 < floor:
            return Run([], trimmed=True, floor=floor)
        return Run([], waiting=bool(pages), floor=floor)

    def at(self, feed: str, number: int) -> Page | None:
        """The page *number*, if it is in the log."""
        found = self.log.read(feed, number - 1, 1) if number > 0 else []
        return found[0] if found and found[0].number == number else None

    def frontier(self, feed: str, hint: int) -> Place:
        """
        The end of the contiguous prefix; *hint* is a page known to be in it, or 0.

        Where everything was trimmed there is no page left to tell its second: 0.
        """
        *_, (place, _) = self.walk(feed, hint)
        return place

    def walk(self, feed: str, hint: int) -> Iterator[tuple[Place, bool]]:
        """The way to the frontier from *hint*, a place a read; True with the last one."""
        place, after, reached = START, max(0, hint - 1), False
        while not reached:
            run = self.read(feed, after)
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

    log: LogStore
    trim: TrimStore
    clock: Clock
    page_ms: int
    count: Count
    chained: Container[str] = ()

    def close_hole(self, feed: str, after: int) -> bool:
        """Fill the hole behind page *after* if it is overdue; True when the log moved on."""
        pages = self.log.read(feed, after, 1)
        if not pages or pages[0].number == after + 1:
            return bool(pages)
        now, beyond = self.clock(), pages[0]
        gap = judge(after + 1, beyond, floor=self.trim.floor(feed), now_ms=now)
        if feed in self.chained or gap is not Gap.OVERDUE:
            return False
        for number in range(after + 1, beyond.number):
            # As old as what follows it: a cursor on it falls back by when its writer died.
            page = filler(number, at_ms=beyond.at_ms, expires_ms=now + self.page_ms)
            if self.log.put(feed, page) == page.append_id:
                self.count("HolesFilled", 1)
        return True
