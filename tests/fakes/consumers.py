"""Named consumers, what is parked of them, and the notes of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked

Key = tuple[str, str]


class MemoryConsumers:
    """Implements `ConsumerStore` and `ConsumerShelf`."""

    def __init__(self) -> None:
        self._consumers: dict[Key, Consumer] = {}
        self._parked: dict[Key, dict[str, Parked]] = {}
        self._notes: dict[Key, list[Note]] = {}
        self._lock = Lock()

    def consumer(self, feed: str, name: str) -> Consumer | None:
        with self._lock:
            return self._consumers.get((feed, name))

    def consumers(self, feed: str) -> Sequence[Consumer]:
        with self._lock:
            found = sorted(self._consumers.items())
        return [consumer for (of, _), consumer in found if of == feed]

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        key = feed, name
        with self._lock:
            standing = self._consumers.get(key)
            if (standing.version if standing else 0) != version:
                return False
            self._consumers.pop(key, None)
            if change.consumer is not None:
                self._consumers[key] = replace(change.consumer, version=version + 1)
            self._put_aside(key, change)
            return True

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        with self._lock:
            return [found for _, found in sorted(self._parked.get((feed, name), {}).items())]

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        with self._lock:
            return self._notes.get((feed, name), [])[: -limits.NOTES_MAX - 1 : -1]

    def _put_aside(self, key: Key, change: Change) -> None:
        parked = self._parked.setdefault(key, {})
        for each in change.drop:
            parked.pop(each, None)
        if change.park is not None:
            parked[change.park.id] = change.park
        if change.note is not None:
            self._notes.setdefault(key, []).append(change.note)
