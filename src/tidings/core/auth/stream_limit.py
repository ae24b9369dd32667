"""
Holding: how many streams a key has open at once, over all processes.

A stream holds a function for as long as it lives, and a stage has few hundred of them; a rate
bounds how often a key comes, not how long it stays. So who opens a stream with a key writes down
that it is there, then counts. Two who come at once may both be refused, never both be let in above
the bound. A process that dies lets go of nothing: its hold ends after `limits.STREAM_HOLD_MS`,
which no function outlives. A server, which does not end streams, renews the holds of its own.

A stream by a key costs 2 WRU and 1 RRU (0.5 for each 4 KB of some 50 holds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.deadlines import has_passed
from tidings.core.errors import TooManyRequests

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed
    from tidings.core.auth.stores import KeyHolds
    from tidings.core.effects import Clock, NewId


@dataclass(slots=True)
class Hold:
    """One stream of *who*, until it is let go."""

    store: KeyHolds
    feed: str
    who: str
    name: str
    until_ms: int
    over: bool = False

    def renew(self, now_ms: int) -> None:
        """Hold the stream for longer if less than half of its time is left."""
        renewed_ms = self.until_ms - limits.STREAM_HOLD_MS
        if self.over or not has_passed(renewed_ms, now_ms, limits.STREAM_HOLD_MS // 2):
            return
        self.until_ms = now_ms + limits.STREAM_HOLD_MS
        self.store.hold(self.feed, self.who, self.name, until_ms=self.until_ms, now_ms=now_ms)
        if self.over:  # released by another thread in the meantime
            self.store.let_go(self.feed, self.who, self.name, self.until_ms)

    def let_go(self) -> None:
        """It has ended; nothing happens the second time."""
        if not self.over:
            self.over = True
            self.store.let_go(self.feed, self.who, self.name, self.until_ms)


@dataclass(frozen=True, slots=True)
class Holding:
    store: KeyHolds
    clock: Clock
    new_id: NewId

    def take(self, feed: str, allowed: Allowed) -> Hold | None:
        """
        One more stream for who is *allowed*; None where they have no bound.

        Raises:
            TooManyRequests: they hold as many as they may.
        """
        if not allowed.streams:
            return None
        now_ms = self.clock()
        until_ms = now_ms + limits.STREAM_HOLD_MS
        hold = Hold(self.store, feed, allowed.who, self.new_id(), until_ms)
        held = self.store.hold(feed, allowed.who, hold.name, until_ms=until_ms, now_ms=now_ms)
        if held > allowed.streams:
            hold.let_go()
            rule = f"may hold {allowed.streams} streams open at once"
            raise TooManyRequests(rule, retry_after_s=limits.STREAM_HELD_RETRY_S)
        return hold
