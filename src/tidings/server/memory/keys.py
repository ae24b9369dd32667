"""The request counts and the open streams of keys, in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from threading import Lock

from tidings.core import limits
from tidings.core.effects import is_ahead


class MemoryKeyUsage:
    """
    Implements `KeyUsage`.

    It keeps the current and the previous window of each key: a caller that reads the clock just
    before a window ends may add its count just after.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], int] = {}
        self._counts: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._lock = Lock()

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        with self._lock:
            counts = self._counts[feed, name]
            counts[window] += requests
            for over in [each for each in counts if each < window - 1]:
                del counts[over]
            return counts[window]

    def hold(self, feed: str, principal: str, name: str, *, until_ms: int, now_ms: int) -> int:
        with self._lock:
            self._held[feed, principal, name] = until_ms
            of = [until for place, until in self._held.items() if place[:2] == (feed, principal)]
            return sum(is_ahead(until, now_ms, limits.STREAM_HOLD_MS) for until in of)

    def release(self, feed: str, principal: str, name: str, until_ms: int) -> None:
        with self._lock:
            self._held.pop((feed, principal, name), None)
