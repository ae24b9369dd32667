"""
Retention: how far the floor may rise, and which pages must be kept from expiring.

A page is given up by age, but never one of the last *records_min* pages and never one that a
built-in follower has not handled. A named consumer is waited for likewise, but not for ever: at
the age of a cap its pages are given up in spite of it. DynamoDB deletes a page a day after that;
what must stay longer is extended in time instead, because deleting by TTL is free and deleting
by hand is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import limits
from .followers import standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from .consumer_holds import Holds
    from .feeds import Retention
    from .ports import Checkpoints, Clock, Count, LogStore, TrimStore
    from .reader import Reader

_EXTEND_EVERY_MS = 3_600_000  # looking costs a read of the old pages; half a day is left then
_EXTEND_WITHIN_MS = 12 * 3_600_000


def _nothing(feed: str) -> Retention | None:
    return None


@dataclass(frozen=True, slots=True)
class Trimmer:
    """
    *purge* is what the operator of a feed allows beside *retention*, *aged* what its `maxAge` does.
    *holds* are its named consumers. *archives*: nothing is given up that is not archived.
    """

    log: LogStore
    trim: TrimStore
    checkpoints: Checkpoints
    reader: Reader
    retention: Retention
    clock: Clock
    count: Count
    purge: Callable[[str], Retention | None] = _nothing
    aged: Callable[[str], Retention | None] = _nothing
    holds: Holds | None = None
    archives: bool = False

    def run(self, feed: str) -> int:
        """Raise the floor of *feed* as far as it may rise; the new floor."""
        now, floor = self.clock(), self.trim.floor(feed)
        held = self.holds.page(feed) if self.holds else None
        raised = max(self._raised(feed, floor, rule, now, held) for rule in self._rules(feed))
        if self.holds and held is not None:
            raised = max(raised, self._raised(feed, raised, self.holds.cap, now, None))
        if raised > floor:
            self.trim.raise_floor(feed, raised)
            self.count("FloorRaised", raised - floor)
        if now % _EXTEND_EVERY_MS < 60_000:
            self._extend(feed, raised, now)
        return raised

    def _rules(self, feed: str) -> list[Retention]:
        found = (self.purge(feed), self.aged(feed))
        return [self.retention, *(rule for rule in found if rule)]

    def _raised(self, feed: str, floor: int, rule: Retention, now: int, held: int | None) -> int:
        bound = self._bound(feed, rule.records_min)
        if held is not None:
            bound = min(bound, held + 1)
        return self._first_young(feed, floor, bound, now - rule.age_ms)

    def _bound(self, feed: str, records_min: int) -> int:
        """The floor must not pass this page, however old the pages are."""
        handled = standing(self.checkpoints.checkpoints(feed), archives=self.archives)
        return min(self.log.head(feed) - records_min, *handled.values()) + 1

    def _extend(self, feed: str, floor: int, now: int) -> None:
        """Keep the old pages from *floor* on; where there are none, nothing is read."""
        young = self._first_young(feed, floor, self.log.head(feed) + 1, now - self.retention.age_ms)
        if young > floor:
            before = now + _EXTEND_WITHIN_MS
            for number in self.trim.expiring(feed, floor, young - 1, before):
                self.trim.extend(feed, number, now + limits.TTL_SLACK_MS)

    def _first_young(self, feed: str, floor: int, bound: int, since_ms: int) -> int:
        """
        The first page from *floor* to *bound* committed after *since_ms*, by halving.

        Commit times ascend but for the skew of the writers' clocks, which is far below any
        retention; a missing page counts as old, and is only ever behind what may be trimmed.
        """
        low, high = floor, max(floor, bound)
        while low < high:
            middle = (low + high) // 2
            page = self.reader.at(feed, middle)
            if page is not None and page.at_ms > since_ms:
                high = middle
            else:
                low = middle + 1
        return low
