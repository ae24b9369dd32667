"""What the keys of feeds hold and have used, until the process ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from threading import Lock

from tidings.core import limits
from tidings.core.deadlines import is_ahead


class MemoryKeyHolds:
    """Implements `KeyHolds`."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], int] = {}
        self._lock = Lock()

    def hold(self, feed: str, who: str, name: str, *, until_ms: int, now_ms: int) -> int:
        with self._lock:
            self._held[feed, who, name] = until_ms
            of = [until for place, until in self._held.items() if place[:2] == (feed, who)]
            return sum(is_ahead(until, now_ms, limits.STREAM_HOLD_MS) for until in of)

    def let_go(self, feed: str, who: str, name: str, until_ms: int) -> None:
        with self._lock:
            self._held.pop((feed, who, name), None)


class MemoryKeyCounts:
    """
    Implements `KeyCounts`.

    Of each key it keeps the window that is counted now, and the one before: whoever looked at the
    clock just before a window ended may come just behind.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._lock = Lock()

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        with self._lock:
            counts = self._counts[feed, name]
            counts[window] += requests
            for over in [each for each in counts if each < window - 1]:
                del counts[over]
            return counts[window]
