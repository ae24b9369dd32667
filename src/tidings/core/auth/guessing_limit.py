"""
Misses: how often somebody showed what opens nothing, so that guessing is bounded.

The throttle of an API does not stand before the address of streams, and each guess costs a slow
hash or two reads of the store. So each process counts the misses of a feed, and where there were
too many it refuses what it does not know yet, before anything is read or hashed. Who is known to
this process is let in meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import TooManyRequests

if TYPE_CHECKING:
    from tidings.core.effects import Clock


class Misses:
    """At most *most* in each `limits.MISSES_MS`; it is asked for feeds that are known to be."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._most = clock, most
        # An entry per miss of each feed and window. Without a lock, because a server may count in
        # its event loop: `setdefault` and `append` are atomic.
        self._counted: dict[tuple[str, int], list[None]] = {}

    def check(self, feed: str) -> None:
        """
        Return if one more may be tried.

        Raises:
            TooManyRequests: there were too many misses.
        """
        now = self._clock()
        if len(self._counted.get((feed, now // limits.MISSES_MS), ())) >= self._most:
            rest_s = -(-(limits.MISSES_MS - now % limits.MISSES_MS) // 1000)
            rule = f"cannot be checked now: {self._most} wrong ones came just before"
            raise TooManyRequests(rule, retry_after_s=rest_s)

    def add(self, feed: str) -> None:
        """What was shown opens nothing."""
        place = feed, self._clock() // limits.MISSES_MS
        if place not in self._counted:
            for old in [each for each in list(self._counted) if each[0] == feed]:
                self._counted.pop(old, None)
        self._counted.setdefault(place, []).append(None)
