"""
Retention: how far the floor may rise.

Pages are trimmed by age, except the last *records_min* pages and pages that a built-in follower has
not handled. Pages that a named consumer needs are kept too, but not forever: they are trimmed at
the maximum age of a cap. The page at the position of a consumer stays as long as the page after it,
because it proves that the position belongs to this log. DynamoDB deletes a page one day later, by
the expiry time it was written with (`page_ms` of the settings), because deletion by TTL is free and
explicit deletion is not. Pages that are needed for longer are renewed (`log.renewal`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.followers.follower import standing
from tidings.core.followers.names import one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.consumers.service import ConsumerRetention
    from tidings.core.log.reader import Reader
    from tidings.core.log.renewal import Renewer
    from tidings.core.model.feeds import Retention


@dataclass(frozen=True, slots=True)
class Look:
    """
    A recent observation of a log: its *head*, and the last page that each follower has *handled*.

    Both only increase, so a floor that an older observation allows is still allowed.
    """

    head: int
    handled: Mapping[str, int]


def _nothing(feed: str) -> Retention | None:
    return None


@dataclass(frozen=True, slots=True)
class Trimmer:
    """
    The retention service.

    *purge* is the retention that the operator of a feed allows in addition to *retention*, *aged*
    that of its `maxAge`. *holds* has its named consumers. *archives*: only archived pages are
    trimmed. *lanes* returns its number of push lanes.
    """

    reader: Reader
    retention: Retention
    renewer: Renewer
    purge: Callable[[str], Retention | None] = _nothing
    aged: Callable[[str], Retention | None] = _nothing
    holds: ConsumerRetention | None = None
    archives: bool = False
    lanes: Callable[[str], int] = one

    def run(self, feed: str, look: Look | None = None) -> int:
        """Raise the floor of *feed* as far as possible; return the new floor."""
        look = look or self._look(feed)
        lanes = self.lanes(feed)
        handled = min(standing(look.handled, archives=self.archives, lanes=lanes).values())
        now, floor = self.reader.clock(), self.reader.trim.floor(feed)
        held = self.holds.pages(feed) if self.holds else frozenset()
        start = self._behind_what_is_lost(feed, floor, handled)

        def young(rule: Retention, *held: int) -> int:
            bound = min(self._before_newest(feed, look.head, rule.records_min), handled, *held) + 1
            return self._first_young(feed, start, bound, now - rule.age_ms)

        raised = max(young(rule, *held) for rule in self._rules(feed))
        if self.holds and held:
            raised = max(raised, young(self.holds.cap))
        raised = max(floor, self._outside_jump(feed, raised))
        while raised > floor and raised - 1 in held:
            raised -= 1  # the page proves that a consumer's position belongs to this log
        if raised > floor:
            self.reader.trim.raise_floor(feed, raised)
            self.reader.count("FloorRaised", raised - floor)
        if (round_ := self.renewer.begin(feed)) is not None:
            since_ms = now - self.retention.age_ms
            stays = self._first_young(feed, raised, look.head + 1, since_ms) - 1
            self.renewer.run(feed, round_, raised, stays)
        return raised

    def _look(self, feed: str) -> Look:
        return Look(self.reader.log.head(feed), self.reader.checkpoints.checkpoints(feed))

    def _behind_what_is_lost(self, feed: str, floor: int, handled: int) -> int:
        """
        Return *floor*, or the page after all handled pages if the log has no page at or after
        *floor*.

        Pages that are missing before the floor has passed them are counted, for an alarm.
        """
        beyond = self.reader.next(feed, floor)
        gone = min(handled, beyond.first - 1 if beyond else handled) - floor + 1
        if gone > 0:
            self.reader.count("PagesLost", gone)
        return floor if beyond else max(floor, handled + 1)

    def _before_newest(self, feed: str, head: int, count: int) -> int:
        """Return the last page before the newest *count* pages; skipped numbers do not count."""
        bound = head - count
        beyond = self.reader.next(feed, bound + 1) if count and bound > 0 else None
        return min(bound, bound - beyond.skipped) if beyond and beyond.first <= bound else bound

    def _outside_jump(self, feed: str, page: int) -> int:
        """Return *page*, or the first of the skipped numbers if it is one of them."""
        beyond = self.reader.next(feed, page)
        return min(page, beyond.first) if beyond else page

    def _rules(self, feed: str) -> list[Retention]:
        rules = (self.purge(feed), self.aged(feed))
        return [self.retention, *(rule for rule in rules if rule)]

    def _first_young(self, feed: str, floor: int, bound: int, since_ms: int) -> int:
        """
        Return the first page from *floor* to *bound* committed after *since_ms*, by binary search.

        Commit times ascend except for the clock skew of the writers, which is far below any
        retention. A missing page is as old as the next existing page. Without a next page it is not
        old, because its absence is not evidence of age.
        """
        low, high = floor, max(floor, bound)
        while low < high:
            middle = (low + high) // 2
            page = self.reader.next(feed, middle)
            if page is None or page.at_ms > since_ms:
                high = middle
            else:
                low = middle + 1
        return low
