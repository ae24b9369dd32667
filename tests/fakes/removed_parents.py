"""The departures of each page, by its number."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.state.removed_parents import RemovedParents


class MemoryRemovedParents:
    """Implements `RemovedParentsStore`."""

    def __init__(self) -> None:
        self._feeds: defaultdict[str, dict[int, RemovedParents]] = defaultdict(dict)
        self._lock = Lock()

    def write(self, feed: str, departures: Sequence[RemovedParents]) -> None:
        with self._lock:
            for each in departures:
                self._feeds[feed].setdefault(each.page, each)

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        with self._lock:
            pages = self._feeds[feed]
            wanted = [number for number in sorted(pages) if first <= number <= last]
            return [replace(pages[number], expires_ms=0) for number in wanted]

    def expire(self, now_ms: int) -> None:
        """Delete those whose time has come, as DynamoDB's TTL does some time or other."""
        with self._lock:
            for pages in self._feeds.values():
                for number in [n for n, each in pages.items() if 0 < each.expires_ms <= now_ms]:
                    del pages[number]
