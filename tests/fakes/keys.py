"""The keys of feeds, and how much of its rate each has used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.core.auth.keys import Key


class MemoryKeys:
    """Implements `Keys`."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], Key] = {}
        self._lock = Lock()

    def key(self, feed: str, name: str) -> Key | None:
        with self._lock:
            return self._keys.get((feed, name))

    def keys(self, feed: str) -> Iterator[Key]:
        with self._lock:
            found = [key for (of, _), key in sorted(self._keys.items()) if of == feed]
        return iter(found)

    def save(self, feed: str, key: Key) -> bool:
        with self._lock:
            standing = self._keys.get((feed, key.id))
            if (standing.version if standing else 0) != key.version:
                return False
            self._keys[feed, key.id] = replace(key, version=key.version + 1)
            return True


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
