"""
Metering: how many requests a key makes, over all processes, without a write for each.

Each process counts by itself and settles at most once a second: it adds what it has counted to an
item, and is told what all have. So a key makes at most its rate in each second and process, and
in each window of ten seconds at most ten times its rate and what processes have not settled yet,
a second's rate each.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from . import limits
from .errors import TooManyRequests, Unavailable

if TYPE_CHECKING:
    from .key_ports import KeyCounts
    from .ports import Clock

_SECOND_MS = 1000


@dataclass(slots=True)
class _Used:
    """
    Of one key: *here* within *second*; *settled* by all within *window*, *open* by us since.

    *settled_ms* is when we settled last.
    """

    second: int = -1
    here: int = 0
    window: int = -1
    settled: int = 0
    open: int = 0
    settled_ms: int = 0

    def at(self, now_ms: int) -> None:
        """Begin anew what belongs to a time that is over."""
        second, window = now_ms // _SECOND_MS, now_ms // limits.KEY_WINDOW_MS
        if second != self.second:
            self.second, self.here = second, 0
        if window != self.window:
            self.window, self.settled, self.open = window, 0, 0


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
            used = self._of(feed, key)
            used.at(now)
            _check(used, rate, now)
            used.here, used.open = used.here + 1, used.open + 1
            due = now - used.settled_ms >= _SECOND_MS
            if due:
                used.settled_ms, count, used.open = now, used.open, 0
        if due:
            self._settle(feed, key, used, count)

    def _of(self, feed: str, key: str) -> _Used:
        used = self._used.setdefault((feed, key), _Used())
        self._used.move_to_end((feed, key))
        while len(self._used) > limits.KEYS_KNOWN_MAX:
            self._used.popitem(last=False)
        return used

    def _settle(self, feed: str, key: str, used: _Used, count: int) -> None:
        """Where the store does not answer, our count is forgotten: nobody is refused for it."""
        window = used.window
        with suppress(Unavailable):
            found = self._counts.add(feed, key, window, count)
            with self._lock:
                if used.window == window:
                    used.settled = max(used.settled, found)


def _check(used: _Used, rate: int, now_ms: int) -> None:
    if used.here >= rate:
        raise TooManyRequests(f"may be used {rate} times a second", retry_after_s=1)
    seconds = limits.KEY_WINDOW_MS // _SECOND_MS
    if used.settled + used.open >= rate * seconds:
        rest_s = -(-(limits.KEY_WINDOW_MS - now_ms % limits.KEY_WINDOW_MS) // _SECOND_MS)
        rule = f"may be used {rate} times a second, {rate * seconds} in {seconds}"
        raise TooManyRequests(rule, retry_after_s=rest_s)
