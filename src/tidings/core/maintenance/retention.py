"""Raise the floor of the log by the rules of retention, and renew pages that are needed for longer.

Pages are trimmed by age, except the last `records_min` pages and pages that a built-in follower has
not handled. Pages that a named consumer needs are kept up to a maximum age, the cap. The page at
the position of a consumer is kept as long as the page after it, as a proof that the position
belongs to this log. Trimmed pages are not deleted explicitly, because DynamoDB charges for
a deletion. It deletes a page for free at the page's expiry time, which is stored when the page is
written. This time is a day after the longest time for which readers may need the page (`page_ms` of
the settings).

Only a few pages are needed after their expiry time. These are the last pages of a feed with little
traffic, pages that a stopped built-in follower has not handled, and pages that were written with a
shorter lifetime than the current setting. The `Renewer` therefore checks the pages above the floor
that are older than the retention. It does so in rounds, a few pages with each sweep, and extends
the lifetime of pages that expire soon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.effects import has_passed
from tidings.core.log.due import NEXT_SWEEP, earliest
from tidings.core.records import Kind, Layout, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.core.consumers.service import ConsumerRetention
    from tidings.core.effects import Runtime
    from tidings.core.followers.follower import BuiltInFollowers
    from tidings.core.log.reader import Reader
    from tidings.core.log.stores import LogStore
    from tidings.core.model.feeds import Retention
    from tidings.core.model.pages import Page
    from tidings.core.records import RecordStore


@dataclass(frozen=True, slots=True)
class Round:
    """A round of renewals. *page* is the last page that was checked; it is 0 after the round."""

    page: int = 0
    began_ms: int = 0


_LAYOUT = Layout(Round, {"began_ms": "began"}, always=("began_ms",))


def rounds_in(records: RecordStore) -> Records[Round]:
    """Return the last rounds of the feeds, in *records*."""
    return Records(records, Kind("renewal"), _LAYOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewer:
    """The renewal of pages that expire too soon."""

    log: LogStore
    rounds: Records[Round]
    runtime: Runtime

    def begin(self, feed: str) -> tuple[Round, bool]:
        """Return the round to continue or to begin, and True.

        If no round is due, return the last one and False. The caller then need not determine which
        pages must stay.
        """
        round_, now = self.rounds.get(feed) or Round(), self.runtime.clock()
        if round_.page:
            return round_, True
        is_due = has_passed(round_.began_ms, now, limits.RENEW_EVERY_MS)
        return (Round(began_ms=now), True) if is_due else (round_, False)

    def run(self, feed: str, round_: Round, first: int, last: int) -> int | None:
        """Renew the pages from *first* to *last* that expire soon, and store the progress.

        Stop when `limits.RENEW_PAGES_MAX` or more pages were renewed. Return the time
        at which the first of these pages expires soon, or None if there are no such pages.
        """
        if first > last:
            self.rounds.save(feed, replace(round_, page=0))
            return None
        now, renewed, is_whole = self.runtime.clock(), 0, not round_.page
        soonest_ms = now + self.runtime.page_ms
        while renewed < limits.RENEW_PAGES_MAX:
            expiries = self.log.expiries(feed, max(round_.page, first - 1), last)
            soon = [str(page) for page, ms in expiries if 0 < ms < now + limits.RENEW_WITHIN_MS]
            self.runtime.spread(
                lambda page: self.log.renew(feed, int(page), now + self.runtime.page_ms), soon
            )
            self.runtime.count("PagesRenewed", len(soon))
            renewed += len(soon)
            later = [ms for _, ms in expiries if ms >= now + limits.RENEW_WITHIN_MS]
            soonest_ms = min([soonest_ms, *later])
            end = not expiries or expiries[-1][0] >= last
            round_ = replace(round_, page=0 if end else expiries[-1][0])
            self.rounds.save(feed, round_)
            if end:
                # A round of several runs has not kept the times of its first pages.
                return soonest_ms - limits.RENEW_WITHIN_MS if is_whole else now
        return NEXT_SWEEP


@dataclass(frozen=True, slots=True)
class Look:
    """The last look at a log: its *head*, and the last page that each follower has *handled*.

    *head* and the pages in *handled* only increase, so a floor that an older observation allows is
    still allowed. *erases* is as in `Lease`.
    """

    head: int
    handled: Mapping[str, int]
    erases: bool = False


class Trimmed(NamedTuple):
    """The result of a visit: the new *floor*, and the time of the next visit.

    *next_ms* is None if no page will be trimmed or renewed until something changes.
    """

    floor: int
    next_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionService:
    """The service that raises the floor of each feed.

    *retention* is the rule of all feeds, and *rules* return further ones of a feed. *holds* returns
    the pages that the named consumers of a feed need. Pages that one of *followers* has not handled
    are not trimmed.
    """

    reader: Reader
    retention: Retention
    renewer: Renewer
    followers: BuiltInFollowers
    rules: Sequence[Callable[[str], Retention | None]] = ()
    holds: ConsumerRetention | None = None

    def run(self, feed: str, look: Look | None = None) -> Trimmed:
        """Raise the floor of *feed* as far as possible, and renew pages that must stay."""
        look = look or Look(self.reader.log.head(feed), self.reader.checkpoints.checkpoints(feed))
        handled = min(self.followers.checkpoints(feed, look.handled).values())
        now, floor = self.renewer.runtime.expiring(), self.reader.log.floor(feed)
        held = self.holds.pages(feed) if self.holds else frozenset()
        start, is_lost = self._after_lost_pages(feed, floor, handled)
        waits = is_lost or min(held, default=look.head) < look.head
        times: list[int | None] = [NEXT_SWEEP if waits else None]

        def young(rule: Retention, *held: int) -> int:
            bound = min(self._before_newest(feed, look.head, rule.records_min), handled, *held) + 1
            first, page = self._first_young(feed, start, bound, now - rule.age_ms)
            times.append(page.at_ms + rule.age_ms if page else None)
            return first

        rules = [self.retention, *filter(None, (rule(feed) for rule in self.rules))]
        raised = max(young(rule, *held) for rule in rules)
        if self.holds and held:
            raised = max(raised, young(self.holds.cap))
        # If the floor would be in a skipped range, use the first number of the range.
        beyond = self.reader.next(feed, raised)
        raised = max(floor, min(raised, beyond.first) if beyond else raised)
        while raised > floor and raised - 1 in held:
            raised -= 1  # the page proves that a consumer's position belongs to this log
        if raised > floor:
            self.reader.log.raise_floor(feed, raised)
            self.reader.count("FloorRaised", raised - floor)
        times.append(self._renew(feed, now, raised, look.head))
        return Trimmed(raised, earliest(times))

    def _renew(self, feed: str, now: int, first: int, head: int) -> int | None:
        """Renew pages from *first* on that must stay; return the time of the next visit."""
        round_, is_due = self.renewer.begin(feed)
        if not is_due:
            return round_.began_ms + limits.RENEW_EVERY_MS if first <= head else None
        age_ms = self.retention.age_ms
        end, page = self._first_young(feed, first, head + 1, now - age_ms)
        next_ms = self.renewer.run(feed, round_, first, end - 1)
        if next_ms == NEXT_SWEEP:
            return next_ms
        next_ms = earliest((next_ms, page.at_ms + age_ms if page else None))
        return None if next_ms is None else max(next_ms, now + limits.RENEW_EVERY_MS)

    def _after_lost_pages(self, feed: str, floor: int, handled: int) -> tuple[int, bool]:
        """Return *floor*, or the page after all handled pages if none is left from *floor* on.

        Handled pages that are missing at or above the floor are counted, for an alarm; also return
        True if there are any.
        """
        beyond = self.reader.next(feed, floor)
        gone = min(handled, beyond.first - 1 if beyond else handled) - floor + 1
        if gone > 0:
            self.reader.count("PagesLost", gone)
        return floor if beyond else max(floor, handled + 1), gone > 0

    def _before_newest(self, feed: str, head: int, count: int) -> int:
        """Return the last page before the newest *count* pages. Do not count skipped numbers."""
        bound = head - count
        beyond = self.reader.next(feed, bound + 1) if count and bound > 0 else None
        return min(bound, bound - beyond.skipped) if beyond and beyond.first <= bound else bound

    def _first_young(
        self, feed: str, floor: int, bound: int, since_ms: int
    ) -> tuple[int, Page | None]:
        """Return the first page from *floor* on that was committed after *since_ms*, or *bound*.

        Also return the page, or the next one in the log if it is missing; None for *bound* and at
        the end of the log. Use a binary search. Commit times ascend except for the clock skew of
        the writers, which is far below any retention. A missing page counts as committed at the
        time of the next page in the log, or after *since_ms* if there is no next page.
        """
        low, high, found = floor, max(floor, bound), None
        while low < high:
            middle = (low + high) // 2
            page = self.reader.next(feed, middle)
            if page is None or page.at_ms > since_ms:
                high, found = middle, page
            else:
                low = middle + 1
        return low, found
