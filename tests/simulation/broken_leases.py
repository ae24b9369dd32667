"""Leases with one rule taken out."""

from __future__ import annotations

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
    """Whoever comes when a lease has run out by its own clock takes it over."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        found = super().take(feed, name, owner=owner, now_ms=now_ms, over=over)
        if found.owner == owner or found.held(now_ms):
            return found
        seen = Observation(found.fence, found.beat)
        return super().take(feed, name, owner=owner, now_ms=now_ms, over=seen)


class HastyProjector(Projector):
    """Where nobody knows whether all rows were written, it goes on all the same."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        try:
            return super().handle(feed, pages)
        except Unavailable:
            return len(pages)


class Unfenced(MemoryState):
    """A row is put whatever stands there; a write that lands late puts an older one back."""

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        overwritten = super().write(feed, rows)
        with self._lock:
            for row in rows:
                self._buckets[feed, row.bucket][row.key] = row
        return overwritten


# Who has looked once takes over: no time has passed in which the holder must have renewed.
without_margin = instead(Observation, "is_long_enough", property(lambda seen: True))
