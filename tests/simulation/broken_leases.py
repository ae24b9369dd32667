"""Leases with one rule taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fakes import MemoryFollowers, MemoryState
from tests.simulation.parts import instead
from tidings.core.errors import Unavailable
from tidings.core.followers.leases import Lease, Observation
from tidings.core.state.projector import Projector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Overwritten, Row


class ByTheClock(MemoryFollowers):
    """A process takes over a lease that has expired by its own clock."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        found = super().take(feed, name, owner=owner, now_ms=now_ms, over=over)
        if found.owner == owner or found.is_held(now_ms):
            return found
        seen = Observation(found.fence, found.beat)
        return super().take(feed, name, owner=owner, now_ms=now_ms, over=seen)


class UnfencedFollowers(MemoryFollowers):
    """A checkpoint is saved, whichever process holds the lease by now."""

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        follower = self._feeds[lease.feed][lease.name]
        self.move(follower, (checkpoint, lease.operations, lease.note))
        follower.renew(now_ms)
        stored = self.lease(follower)
        return replace(stored, owner=lease.owner, fence=lease.fence)


class MarklessFollowers(MemoryFollowers):
    """A mark is lost."""

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        before = super().mark(feed, name, look=look)
        if before is not None:
            self._feeds[feed][name].marks -= 1
        return before


class HastyProjector(Projector):
    """Continues without knowing whether all rows were written."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        try:
            return super().handle(feed, pages)
        except Unavailable:
            return len(pages)


class Unfenced(MemoryState):
    """A row is put over any stored row, so a late write restores an older one."""

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        overwritten = super().write(feed, rows)
        with self._lock:
            for row in rows:
                self._buckets[feed, row.bucket][row.key] = row
        return overwritten


# An observer takes over at its first look, before the holder must have renewed.
without_margin = instead(Observation, "is_long_enough", property(lambda seen: True))
