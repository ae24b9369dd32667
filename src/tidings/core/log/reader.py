"""Read the log up to its first hole, and decide what a missing page number means.

A missing number at or above the floor usually belongs to a page in flight, that is, a page that its
writer is about to write. Readers therefore stop before the number. If the next page in the log is
older than a short grace period, a follower closes the hole with a filler. The late writer then
finds the filler at its number. A missing number below the floor was trimmed, which is reported as
`trimmed`. If a follower has handled the number, or if the number has been missing for longer than
the minimum lifetime of a page, the page existed and is lost. Every reader then gets an error, and
the number is never filled.

Far from the end of the log, reads are eventually consistent. They cost half as much as strongly
consistent reads and put no load on the leader replica of DynamoDB, which followers and writers
need. A page that such a read returns is correct, because pages never change, except that an erasure
removes content from entries. A page that such a read does not return may exist, so a missing page
shows neither the end of the log nor a hole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import TidingsError
from tidings.core.model.cursors import PAGE_END, START, Place
from tidings.core.model.pages import Page, filler
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from tidings.core.effects import Clock, Count
    from tidings.core.log.stores import Checkpoints, LogStore


class Gap(Enum):
    """The reason why a page number is missing although a later page exists."""

    IN_FLIGHT = "in flight"
    OVERDUE = "overdue"
    LOST = "lost"
    TRIMMED = "trimmed"


class PagesLost(TidingsError):
    """The pages *first* to *beyond* - 1 are lost: they existed, and were not trimmed."""

    def __init__(self, *, feed: str, first: int, beyond: int) -> None:
        self.first, self.beyond = first, beyond
        super().__init__(f"{feed}: the pages {first} to {beyond - 1} above the floor are missing")


@dataclass(frozen=True, slots=True)
class Run:
    """Pages that follow each other without a hole.

    *waiting* is True if a hole follows the pages. *trimmed* is True if the next page was trimmed;
    *floor* is then the floor of the log. *more* is True if the read stopped early, so that more
    pages may follow.
    """

    pages: list[Page]
    waiting: bool = False
    more: bool = False
    trimmed: bool = False
    floor: int = 0


def contiguous(pages: Sequence[Page], after: int) -> int:
    """Return how many of *pages* follow page *after* without a hole."""
    for count, page in enumerate(pages):
        if page.first > after + 1:
            return count
        after = page.number
    return len(pages)


def classify_gap(
    missing: int, beyond: Page, *, floor: int, handled: int, now_ms: int, expiring_ms: int
) -> Gap:
    """Return why page *missing* is not in the log.

    *beyond* is the next page in the log, and *handled* the last page that a follower has handled.
    *expiring_ms* is the time by the clock that decides when pages expire.
    """
    if missing < floor:
        return Gap.TRIMMED
    if missing <= handled or expiring_ms - beyond.at_ms >= limits.HOLE_LOST_MS:
        return Gap.LOST
    grace_ms = limits.HOLE_GRACE_MS
    is_recent = is_ahead(beyond.at_ms + grace_ms, now_ms, grace_ms)
    return Gap.IN_FLIGHT if is_recent else Gap.OVERDUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader of the log, without write access.

    *checkpoints* show which pages existed, because a follower handles only pages that exist.
    *expiring* is the clock that decides when pages expire; if it is None, *clock* decides. *ends*
    caches the last known end of the log of each feed.
    """

    log: LogStore
    checkpoints: Checkpoints
    clock: Clock
    count: Count
    expiring: Clock | None = None
    ends: dict[str, int] = field(default_factory=Newest)

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        """Return the pages after page *after* up to the first hole.

        Raises:
            PagesLost: the next page is lost.
        """
        if self._is_near(feed, after, limit):
            return self._read(feed, after, limit, [])
        batch = self.log.read(feed, after, limit, eventual=True)
        pages = batch[: contiguous(batch, after)]
        if pages and batch.more and len(pages) == len(batch):
            return Run(pages, more=True)
        if batch and not pages and after + 1 < (floor := self.log.floor(feed)):
            return Run([], trimmed=True, floor=floor)  # the pages after the hole are not needed
        return self._read(feed, after, limit, pages)

    def _is_near(self, feed: str, after: int, limit: int | None) -> bool:
        """Return True if the read is to be strongly consistent.

        This is the case if the read begins close to the end of the log, or is so small that
        eventual consistency saves nothing.
        """
        if limit is not None and limit <= limits.NEAR_PAGES:
            return True
        return feed in self.ends and abs(after - self.ends[feed]) <= limits.NEAR_PAGES

    def _read(self, feed: str, after: int, limit: int | None, known: list[Page]) -> Run:
        """Read as `read` does, but strongly consistently.

        The pages *known* follow page *after* and were read already. The result begins with these
        pages.
        """
        reached = known[-1].number if known else after
        batch = self.log.read(feed, reached, limit and limit - len(known))
        pages = [*known, *batch]
        count = contiguous(pages, after)
        waiting = count < len(pages)
        more = batch.more and not waiting
        end = None if more else pages[count - 1].number if count else after
        if end is None:
            self.ends.pop(feed, None)
        else:
            self.ends[feed] = end
        if count:
            return Run(pages[:count], waiting=waiting, more=more)
        floor = self.log.floor(feed)
        if after + 1 < floor:
            return Run([], trimmed=True, floor=floor)
        if pages and self.gap(feed, after + 1, pages[0]) is Gap.LOST:
            self.count("PagesLost", pages[0].first - after - 1)
            raise PagesLost(feed=feed, first=after + 1, beyond=pages[0].first)
        return Run([], waiting=waiting, floor=floor)

    def read_until(self, feed: str, after: int, until: int) -> Run:
        """Return the pages after page *after* up to page *until*.

        Raises:
            PagesLost: see `read`.
        """
        run = self.read(feed, after, until - after)
        pages = [page for page in run.pages if page.number <= until]
        ends = bool(run.pages) and (len(pages) < len(run.pages) or pages[-1].number == until)
        return replace(run, pages=pages, more=run.more and not ends)

    def read_or_trimmed(self, feed: str, after: int, limit: int | None = None) -> Run:
        """Read as `read` does, but report lost pages as trimmed, for callers that can skip them."""
        try:
            return self.read(feed, after, limit)
        except PagesLost as lost:
            return Run([], trimmed=True, floor=lost.beyond)

    def gap(self, feed: str, missing: int, beyond: Page) -> Gap:
        """Classify the *missing* number, given the next page *beyond* it.

        Read the floor last, so that pages trimmed in the meantime count as trimmed. If a page seems
        lost, read it once more, because it may have been written and handled in the meantime.
        """
        handled = max(self.checkpoints.checkpoints(feed).values(), default=0)
        now_ms = self.clock()
        gap = classify_gap(
            missing,
            beyond,
            handled=handled,
            now_ms=now_ms,
            expiring_ms=now_ms if self.expiring is None else self.expiring(),
            floor=self.log.floor(feed),
        )
        return Gap.IN_FLIGHT if gap is Gap.LOST and self.at(feed, missing) else gap

    def at(self, feed: str, number: int) -> Page | None:
        """Return page *number*, or None if it is not in the log."""
        page = self.next(feed, number) if number > 0 else None
        return page if page and page.number == number else None

    def next(self, feed: str, number: int) -> Page | None:
        """Return page *number* or the first page after it in the log, or None."""
        pages = self.log.read(feed, number - 1, 1)
        return pages[0] if pages else None

    def frontier(self, feed: str, hint: int) -> Place:
        """Return the place of the frontier. *hint* is a page known to be at or below it, or 0.

        The seconds of the place are 0 if all pages were trimmed, because their times are unknown.
        """
        *_, (place, _) = self.walk(feed, hint)
        return place

    def walk(self, feed: str, hint: int) -> Iterator[tuple[Place, bool]]:
        """Read from page *hint* to the frontier; yield the place reached by each read.

        With each place, yield True if it is the last place. Lost pages end the walk, as a page in
        flight does.
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
    """The writer of fillers into overdue holes.

    Only followers have a `Filler`, because no other reader may write to the log.

    Holes of a *chained* feed are never filled: they are not left by producers that crashed, because
    such a feed has no producers.
    """

    reader: Reader
    page_ms: int
    chained: Container[str] = ()

    def close_hole(self, feed: str, after: int) -> bool:
        """Fill the hole after page *after* if it is overdue.

        Return True if page *after* + 1 exists now.
        """
        beyond = self.reader.next(feed, after + 1)
        if beyond is None or beyond.first <= after + 1:
            return beyond is not None
        gap = self.reader.gap(feed, after + 1, beyond)
        if feed in self.chained or gap is not Gap.OVERDUE:
            return False
        expires_ms = self.reader.clock() + self.page_ms
        for number in range(after + 1, beyond.first):
            # The filler has the time of the next page. A reader that resumes by the time of the
            # filler therefore resumes at about the time of the crash, not at the current time.
            page = filler(number, at_ms=beyond.at_ms, expires_ms=expires_ms)
            if self.reader.log.put(feed, page) == page.append_id:
                self.reader.count("HolesFilled", 1)
        return True
