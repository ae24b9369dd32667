"""
Whether anybody asks for the sums of a feed, which decides on a server whether they are kept.

There they take a sixth of the CPU of an operation in bulk (ADR 61). Who asks first waits until the
state has been counted. A stage keeps the sums of every feed, for 2 % of what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.followers.names import STATE

if TYPE_CHECKING:
    from tidings.core.effects import Clock
    from tidings.core.followers.stores import Waker


def always(feed: str) -> bool:
    """Sums are kept whether or not anybody asks."""
    return True


@dataclass(frozen=True, slots=True)
class SumDemand:
    """
    Until when the sums of each feed are wanted. Where nobody asked lately, *waker* wakes the
    follower `state`, which counts.

    A process that starts knows of no question, so that it counts once somebody asks.
    """

    clock: Clock
    waker: Waker
    _until_ms: dict[str, int] = field(default_factory=dict)

    def note(self, feed: str) -> None:
        """Somebody asks for the sums of *feed*."""
        lacks = not self.wants(feed)
        self._until_ms[feed] = self.clock() + limits.SUMS_WANTED_MS
        if lacks:
            self.waker.ring(feed, STATE)

    def wants(self, feed: str) -> bool:
        """Whether somebody asked within `limits.SUMS_WANTED_MS`."""
        return self.clock() < self._until_ms.get(feed, 0)
