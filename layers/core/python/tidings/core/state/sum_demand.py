"""
Which feeds' sums are kept, on a host where they cost more than they should if nobody asks.

That is a server, which takes a sixth more CPU for an operation in bulk (ADR 61). It keeps the sums
of feeds that somebody asks for; whoever asks first waits until the state has been counted. A stage
keeps all of them, for a fiftieth of what it takes.
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
    """What is wanted of the sums of *feed* where they are kept whether or not anybody asks."""
    return True


@dataclass(frozen=True, slots=True)
class SumDemand:
    """
    Who asked of this process, by feed; *waker* begins to count where nobody had asked lately.

    A process that starts knows of nobody. So sums that were kept before are counted anew when
    somebody asks again.
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
