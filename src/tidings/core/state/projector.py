"""The follower `state`: the latest operation of each object, in the state table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.followers.lanes import pushers
from tidings.core.followers.names import STATE
from tidings.core.state.removed_parents import depart
from tidings.core.state.rows import project
from tidings.core.state.tombstones import known_since, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Clock
    from tidings.core.followers.leases import Lease
    from tidings.core.followers.stores import Waker
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.state.rows import Row
    from tidings.core.state.stores import RemovedParentsStore, StateStore
    from tidings.core.state.sum_keeper import SumKeeper
    from tidings.core.state.tombstones import TombstoneStore


@dataclass(frozen=True, slots=True)
class Projector:
    """
    A row is put over older ones only, and the first departures of a page stand. So pages that are
    seen again change nothing, nor does a request that lands when others have taken over.

    Departures come before the rows: where a row is, what it overwrote has been looked at. So does
    the note of how long tombstones live: nobody who judges by it finds one that lives shorter.
    """

    states: StateStore
    departures: RemovedParentsStore
    profiles: ProfileStore
    waker: Waker
    clock: Clock
    tombstones: TombstoneStore
    sums: SumKeeper
    tombstone_ms: int
    page_ms: int

    @property
    def name(self) -> str:
        return STATE

    def begin(self, lease: Lease) -> int:
        """It handles every page."""
        self.sums.begin(lease)
        return lease.checkpoint

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Sums that are not known are counted, also where no page comes."""
        return self.sums.recount(feed, checkpoint)

    def note(self, feed: str) -> bytes:
        return self.sums.note(feed)

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        rows = project(pages, tombstone_ms=self.tombstone_ms, now_ms=self.clock())
        first = bool(pages) and pages[0].number == 1
        if first or any(row.expires_ms for row in rows):
            note(self.tombstones, feed, self.tombstone_ms, self.clock(), first=first)
        if rows and self._keeps(feed):
            self._depart(feed, pages, rows)
        if rows:
            overwritten = self.states.write(feed, rows)
            oldest_ms = min(page.at_ms for page in pages)
            # No tombstone lives shorter, so that a turn in time reads nothing.
            is_late = oldest_ms < self.clock() - limits.RETENTION_MS_MIN
            may_lack = is_late and oldest_ms <= self._forgotten_ms(feed)
            self.sums.count(feed, pages, rows, overwritten, may_lack=may_lack)
            self.sums.recount(feed, pages[-1].number)
        return len(pages)

    def moved(self, feed: str) -> None:
        profile = self.profiles.profile(feed)
        for pusher in pushers(profile.push_lanes) if profile.leave else ():
            self.waker.ring(feed, pusher)

    def lost(self, feed: str) -> bool:
        """What is not in the state is wrong from then on: only a repair or a copy helps."""
        return False

    def _keeps(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def _depart(self, feed: str, pages: Sequence[Page], rows: Sequence[Row]) -> None:
        standing = self.states.find(feed, [row.key for row in rows])
        forgotten_ms = self._forgotten_ms(feed)
        departures = depart(pages, standing, page_ms=self.page_ms, forgotten_ms=forgotten_ms)
        if departures:
            self.departures.write(feed, departures)

    def _forgotten_ms(self, feed: str) -> int:
        """Tombstones of operations committed at or before it may have expired."""
        known_ms = known_since(self.tombstones, feed, self.clock())
        return known_ms + limits.CLOCK_SKEW_MS_MAX  # DynamoDB deletes by its own clock
