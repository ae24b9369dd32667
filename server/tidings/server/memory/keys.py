"""What the keys of feeds hold and have used, until the process ends."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class MemoryKeyHolds:
    """Implements `KeyHolds`."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], int] = {}
        self._lock = Lock()

    def hold(self, feed: str, who: str, name: str, *, until_ms: int, now_ms: int) -> int:
        with self._lock:
            self._held[feed, who, name] = until_ms
            of = [until for place, until in self._held.items() if place[:2] == (feed, who)]
            return sum(until > now_ms for until in of)

    def let_go(self, feed: str, who: str, name: str, until_ms: int) -> None:
        with self._lock:
            self._held.pop((feed, who, name), None)


class MemoryKeyCounts:
    """Implements `KeyCounts`."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._lock = Lock()

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        with self._lock:
            self._counts[feed, name, window] += requests
            return self._counts[feed, name, window]
