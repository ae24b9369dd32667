"""The keys of feeds."""

from __future__ import annotations

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
