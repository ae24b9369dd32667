"""How long the deletions of each feed are remembered."""

from __future__ import annotations

from threading import Lock

from tidings.core.state.tombstones import Remembered


class MemoryTombstones:
    """Implements `TombstoneStore`."""

    def __init__(self) -> None:
        self._remembered: dict[str, Remembered] = {}
        self._lock = Lock()

    def remembered(self, feed: str) -> Remembered | None:
        with self._lock:
            return self._remembered.get(feed)

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        with self._lock:
            if self._remembered.get(feed) != old:
                return False
            self._remembered[feed] = new
            return True
