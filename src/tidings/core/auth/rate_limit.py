"""
Metering: how much of its rate a key has used, over all processes, without a write for each request.

Each process counts by itself and settles at most once a second: it adds what it has counted to an
item, and is told what all have. So a key makes at most its rate in each second and process, and
in each window of ten seconds at most ten times its rate and what processes have not settled yet,
a second's rate each.

What is read for a key counts as well, a request for each `limits.KEY_READ_SIZE`: a key that may
have little of a feed has all of it read. How much it is shows when it was read, so a window may
hold more than the rate allows. What is above counts in the window behind it, in the process that
counted it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.deadlines import has_passed
from tidings.core.errors import TooManyRequests, Unavailable
from tidings.core.settings.revocations import FOR_GOOD, Admission

if TYPE_CHECKING:
    from tidings.core.auth.stores import KeyCounts
    from tidings.core.effects import Clock

_SECOND_MS = 1000
_SECONDS = limits.KEY_WINDOW_MS // _SECOND_MS  # of a window


@dataclass(slots=True)
class _Used:
    """
    Of one key: *here* within *second*; *settled* by all within *window*, *open* by us since.

    *settled_ms* is when we settled last. *above* is what we counted in the window that it had no
    room for, *read* what was read and makes no request yet.
    """

    second: int = -1
    here: int = 0
    window: int = -1
    settled: int = 0
    open: int = 0
    settled_ms: int = 0
    above: int = 0
    read: int = 0

    def at(self, now_ms: int, rate: int) -> None:
        """Begin anew what belongs to a time that is over."""
        second, window = now_ms // _SECOND_MS, now_ms // limits.KEY_WINDOW_MS
        if second != self.second:
            self.second, self.here = second, 0
        if window != self.window:
            unsettled = min(self.open, max(0, self.settled + self.open - rate * _SECONDS))
            between = max(0, window - self.window - 1)  # windows that paid for it; clocks step back
            self.open = max(0, self.above + unsettled - between * rate * _SECONDS)
            self.window, self.settled, self.above = window, 0, 0


class Meter:
    def __init__(self, counts: KeyCounts, clock: Clock) -> None:
        self._counts, self._clock = counts, clock
        self._used: OrderedDict[tuple[str, str], _Used] = OrderedDict()
        self._lock = Lock()

    def spend(self, feed: str, key: str, rate: int) -> None:
        """
        Count a request with *key*, which may make *rate* a second.

        Raises:
            TooManyRequests: it has made them; the refused one does not count.
        """
        now = self._clock()
        with self._lock:
            used = self._of(feed, key, rate, now)
            rest_ms = _rest_ms(used, rate, now)
            if not rest_ms:
                used.here, used.open = used.here + 1, used.open + 1
        self._settle(feed, key, rate, now)
        if rest_ms:
            rule = f"may be used {rate} times a second, {rate * _SECONDS} in {_SECONDS}"
            raise TooManyRequests(rule, retry_after_s=-(-rest_ms // _SECOND_MS))

    def charge(self, feed: str, key: str, rate: int, size: int) -> bool:
        """
        Count *size*, which was read, whatever the rate; whether it made a request or more.

        What makes none yet counts with what is read next for the key, by whatever way.
        """
        now = self._clock()
        with self._lock:
            used = self._of(feed, key, rate, now)
            requests, used.read = divmod(used.read + size, limits.KEY_READ_SIZE)
            used.open += requests
            if requests:
                used.settled_ms = 0  # the process may be frozen behind its answer: others hear now
        if requests:
            self._settle(feed, key, rate, now)
        return requests > 0

    def wait_ms(self, feed: str, key: str, rate: int) -> int:
        """How long nothing is to be read for *key*; 0 where its rate is not exceeded."""
        now = self._clock()
        self._settle(feed, key, rate, now)  # other processes may have used it up
        with self._lock:
            used = self._of(feed, key, rate, now)
            # Not where it is used up: what the last request asked for may be read.
            exceeded = used.settled + used.open > rate * _SECONDS
        return _window_rest_ms(now) if exceeded else 0

    def charge_for(self, feed: str, admission: Admission) -> ReadCharge:
        """Implements `Charges`."""
        return ReadCharge(feed, admission, self)

    def _of(self, feed: str, key: str, rate: int, now_ms: int) -> _Used:
        used = self._used.setdefault((feed, key), _Used())
        self._used.move_to_end((feed, key))
        while len(self._used) > limits.KEYS_KNOWN_MAX:
            self._used.popitem(last=False)
        used.at(now_ms, rate)
        return used

    def _settle(self, feed: str, key: str, rate: int, now_ms: int) -> None:
        """
        Where it is due. Where the store does not answer, our count is forgotten: nobody is
        refused for it.
        """
        with self._lock:
            used = self._of(feed, key, rate, now_ms)
            is_known = not used.open and used.settled > rate * _SECONDS
            if is_known or not has_passed(used.settled_ms, now_ms, _SECOND_MS):
                return
            window, count = used.window, used.open
            used.settled_ms, used.open = now_ms, 0
        with suppress(Unavailable):
            counted = self._counts.add(feed, key, window, count)
            with self._lock:
                if used.window == window:
                    used.settled = max(used.settled, counted)
                    used.above += max(0, min(count, counted - rate * _SECONDS))


def _rest_ms(used: _Used, rate: int, now_ms: int) -> int:
    """How long it takes until what bounds it is over, 0 where nothing does."""
    if used.settled + used.open >= rate * _SECONDS:
        return _window_rest_ms(now_ms)
    return _SECOND_MS - now_ms % _SECOND_MS if used.here >= rate else 0


def _window_rest_ms(now_ms: int) -> int:
    return limits.KEY_WINDOW_MS - now_ms % limits.KEY_WINDOW_MS


@dataclass(slots=True)
class ReadCharge:
    """
    Charges what is read on *feed*, with what *admission* allows, to the rate of its key.

    Nothing is charged without a rate. *due*: the rate is to be asked before more is read. At first
    it is not: the request was counted just now.
    """

    feed: str = ""
    admission: Admission = FOR_GOOD
    meter: Meter | None = None
    due: bool = False

    def add(self, size: int) -> None:
        """*size*, as `limits.KEY_READ_SIZE` counts it, was read."""
        key, rate = self.admission.key, self.admission.rate
        if self.meter is not None and rate and self.meter.charge(self.feed, key, rate, size):
            self.due = True

    def wait_ms(self) -> int:
        """How long to wait before more is read, 0 where it may be now."""
        key, rate = self.admission.key, self.admission.rate
        if self.meter is None or not rate or not self.due:
            return 0
        rest_ms = self.meter.wait_ms(self.feed, key, rate)
        self.due = rest_ms > 0
        return rest_ms


# How what is read on a feed for somebody who was let in is charged.
Charges = Callable[[str, Admission], ReadCharge]


def free(feed: str, admission: Admission) -> ReadCharge:
    """Implements `Charges` where nobody has a rate."""
    return ReadCharge()
