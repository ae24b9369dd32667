"""Quotas of keys over all processes, for the request rate and the number of open streams.

Each process counts the requests of a key. At most once a second, the process adds its count to a
stored count and gets the total of all processes, so no request needs its own write. Each process
accepts at most the rate of the key in each second. In each window of ten seconds, all processes
together accept at most ten times the rate, plus one second's rate for each process that has not
written yet.

Data that is read for a key counts as one request per `limits.KEY_READ_SIZE`, because the whole feed
is read even if the key is restricted to a small part of the feed. The amount is known only after
the read, so the count of a window may exceed the rate. The process that counted the excess carries
the excess over to the next window.

The number of open streams has a limit of its own. A stream occupies an instance of a function as
long as it is open, and a stage has a few hundred instances. A rate limits how often a key connects,
but not for how long. Each stream has a stored entry, its slot, which is written before the slots
are counted. If two streams open at the same time, both may be rejected, but they never exceed the
limit together. The slots of a crashed process expire after `limits.STREAM_HOLD_MS`, which is longer
than a function can run. A server does not end streams, so it renews its slots. On AWS, a stream of
a key costs 2 write units to write and delete its slot, and 1 read unit for each 50 slots that are
counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.effects import has_passed
from tidings.core.errors import TooManyRequests, Unavailable
from tidings.core.newest import Newest
from tidings.core.settings.values import FOR_GOOD, Admission

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed
    from tidings.core.effects import Clock, Runtime

_SECOND_MS = 1000
_SECONDS = limits.KEY_WINDOW_MS // _SECOND_MS  # the length of a window


class KeyUsage(Protocol):
    """The requests and the open streams of each key."""

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        """Add *requests* of the key *name* in *window*; return the total of all processes."""

    def hold(self, feed: str, principal: str, name: str, *, until_ms: int, now_ms: int) -> int:
        """Store the slot *name* until *until_ms*; return how many slots *principal* has now."""

    def release(self, feed: str, principal: str, name: str, until_ms: int) -> None:
        """Delete the slot *name*, which was stored until *until_ms*."""


@dataclass(slots=True)
class _Used:
    """The counts of requests with one key.

    *here* is the count of this process in *second*. *stored* is the stored count of all processes
    in *window*. *open* is the count that this process has not written yet. *stored_ms* is the time
    of the last write of this process.

    *above* is the part of this process's count in *window* that exceeded the rate. *read* is the
    size of the data that was read but does not count yet, because it is not enough for a request.
    """

    second: int = -1
    here: int = 0
    window: int = -1
    stored: int = 0
    open: int = 0
    stored_ms: int = 0
    above: int = 0
    read: int = 0

    def at(self, now_ms: int, rate: int) -> None:
        """Reset the counts of a second or window that has ended."""
        second, window = now_ms // _SECOND_MS, now_ms // limits.KEY_WINDOW_MS
        if second != self.second:
            self.second, self.here = second, 0
        if window != self.window:
            open_above = min(self.open, max(0, self.stored + self.open - rate * _SECONDS))
            between = max(0, window - self.window - 1)  # idle windows; 0 if the clock was set back
            self.open = max(0, self.above + open_above - between * rate * _SECONDS)
            self.window, self.stored, self.above = window, 0, 0


class RateLimiter:
    def __init__(self, counts: KeyUsage, clock: Clock) -> None:
        self._counts, self._clock = counts, clock
        self._used: Newest[tuple[str, str], _Used] = Newest(limits.KEYS_KNOWN_MAX)
        self._lock = Lock()

    def spend(self, feed: str, key: str, rate: int) -> None:
        """Count a request with *key*, which may make *rate* requests per second.

        Raises:
            TooManyRequests: the rate is used up; the rejected request does not count.
        """
        now = self._clock()
        with self._lock:
            used = self._of(feed, key, rate, now)
            rest_ms = _rest_ms(used, rate, now)
            if not rest_ms:
                used.here, used.open = used.here + 1, used.open + 1
        self._settle(feed, key, rate, now)
        if rest_ms:
            rule = f"may be used {rate} times a second and {rate * _SECONDS} times in {_SECONDS} s"
            raise TooManyRequests(rule, retry_after_s=-(-rest_ms // _SECOND_MS))

    def charge(self, feed: str, key: str, rate: int, size: int) -> bool:
        """Count a read of *size*; return True if it counts as at least one request.

        *size* is in the unit of `limits.KEY_READ_SIZE`. The read counts even if the rate is used
        up. A remainder that is not enough for a request counts with the next read for the key.
        """
        now = self._clock()
        with self._lock:
            used = self._of(feed, key, rate, now)
            requests, used.read = divmod(used.read + size, limits.KEY_READ_SIZE)
            used.open += requests
            if requests:
                used.stored_ms = 0  # write now: the process may be frozen after its response
        if requests:
            self._settle(feed, key, rate, now)
        return requests > 0

    def wait_ms(self, feed: str, key: str, rate: int) -> int:
        """Return how long to wait before reading more for *key*; 0 if its rate is not exceeded."""
        now = self._clock()
        self._settle(feed, key, rate, now)  # other processes may have used up the rate
        with self._lock:
            used = self._of(feed, key, rate, now)
            # The comparison is `>`, so that the data for the last allowed request may be read.
            exceeded = used.stored + used.open > rate * _SECONDS
        return _window_rest_ms(now) if exceeded else 0

    def charge_for(self, feed: str, admission: Admission) -> ReadCharge:
        """Implement `Charges`."""
        return ReadCharge(feed, admission, self)

    def _of(self, feed: str, key: str, rate: int, now_ms: int) -> _Used:
        self._used[feed, key] = used = self._used.get((feed, key)) or _Used()
        used.at(now_ms, rate)
        return used

    def _settle(self, feed: str, key: str, rate: int, now_ms: int) -> None:
        """Write the count of this process if a write is due.

        If the store is unavailable, drop the count, so that the failure rejects no request.
        """
        with self._lock:
            used = self._of(feed, key, rate, now_ms)
            is_known = not used.open and used.stored > rate * _SECONDS
            if is_known or not has_passed(used.stored_ms, now_ms, _SECOND_MS):
                return
            window, count = used.window, used.open
            used.stored_ms, used.open = now_ms, 0
        with suppress(Unavailable):
            counted = self._counts.add(feed, key, window, count)
            with self._lock:
                if used.window == window:
                    used.stored = max(used.stored, counted)
                    used.above += max(0, min(count, counted - rate * _SECONDS))


def _rest_ms(used: _Used, rate: int, now_ms: int) -> int:
    """Return how long the key must wait; 0 if its rate is not used up."""
    if used.stored + used.open >= rate * _SECONDS:
        return _window_rest_ms(now_ms)
    return _SECOND_MS - now_ms % _SECOND_MS if used.here >= rate else 0


def _window_rest_ms(now_ms: int) -> int:
    return limits.KEY_WINDOW_MS - now_ms % limits.KEY_WINDOW_MS


@dataclass(slots=True)
class ReadCharge:
    """A counter of the data that is read on *feed* for a request with *admission*.

    The data counts against the rate of the key, if the key has a rate. *due* is True if the rate
    must be checked before more data is read, and False at first, because the rate was checked when
    the request itself was counted.
    """

    feed: str = ""
    admission: Admission = FOR_GOOD
    meter: RateLimiter | None = None
    due: bool = False

    def add(self, size: int) -> None:
        """Count data of *size*, in the unit of `limits.KEY_READ_SIZE`."""
        key, rate = self.admission.key, self.admission.rate
        if self.meter is not None and rate and self.meter.charge(self.feed, key, rate, size):
            self.due = True

    def wait_ms(self) -> int:
        """Return how long to wait before reading more; 0 if no wait is needed."""
        key, rate = self.admission.key, self.admission.rate
        if self.meter is None or not rate or not self.due:
            return 0
        rest_ms = self.meter.wait_ms(self.feed, key, rate)
        self.due = rest_ms > 0
        return rest_ms


# A function that takes a feed and an admission, and returns the counter of the data that is read.
Charges = Callable[[str, Admission], ReadCharge]


def free(feed: str, admission: Admission) -> ReadCharge:
    """Implement `Charges` for hosts without rates: return a counter without effect."""
    return ReadCharge()


@dataclass(slots=True)
class StreamSlot:
    """A slot, which counts as an open stream of *principal* until the slot is released."""

    store: KeyUsage
    feed: str
    principal: str
    name: str
    until_ms: int
    over: bool = False

    def renew(self, now_ms: int) -> None:
        """Extend the expiry of the slot if less than half of its lifetime is left."""
        renewed_ms = self.until_ms - limits.STREAM_HOLD_MS
        if self.over or not has_passed(renewed_ms, now_ms, limits.STREAM_HOLD_MS // 2):
            return
        self.until_ms = now_ms + limits.STREAM_HOLD_MS
        self.hold(now_ms)
        if self.over:  # released by another thread in the meantime
            self.store.release(self.feed, self.principal, self.name, self.until_ms)

    def release(self) -> None:
        """Release the slot; a second call does nothing."""
        if not self.over:
            self.over = True
            self.store.release(self.feed, self.principal, self.name, self.until_ms)

    def hold(self, now_ms: int) -> int:
        """Store the slot; return how many slots of the principal have not expired."""
        return self.store.hold(
            self.feed, self.principal, self.name, until_ms=self.until_ms, now_ms=now_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuota:
    store: KeyUsage
    runtime: Runtime

    def acquire(self, feed: str, allowed: Allowed) -> StreamSlot | None:
        """Return a slot for one more stream of the caller, or None if the number is unlimited.

        Raises:
            TooManyRequests: the maximum number of streams is open.
        """
        if not allowed.streams:
            return None
        now_ms = self.runtime.clock()
        until_ms = now_ms + limits.STREAM_HOLD_MS
        slot = StreamSlot(self.store, feed, allowed.principal, self.runtime.new_id(), until_ms)
        if slot.hold(now_ms) > allowed.streams:
            slot.release()
            rule = f"may have at most {allowed.streams} streams open at once"
            raise TooManyRequests(rule, retry_after_s=limits.STREAM_HELD_RETRY_S)
        return slot
