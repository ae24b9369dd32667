"""The summaries of tags, by the page each ends with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.changeagent.tag_index import Summary


class MemoryTags:
    """Implements `TagStore`."""

    def __init__(self) -> None:
        self._feeds: defaultdict[str, dict[int, Summary]] = defaultdict(dict)
        self._lock = Lock()

    def write(self, feed: str, summaries: Sequence[Summary]) -> None:
        with self._lock:
            self._feeds[feed].update({each.last: each for each in summaries})

    def read(self, feed: str, after: int, limit: int) -> list[Summary]:
        with self._lock:
            found = self._feeds[feed]
            ends = [last for last in sorted(found) if last > after][:limit]
            return [replace(found[last], expires_ms=0) for last in ends]

    def last(self, feed: str) -> int:
        with self._lock:
            return max(self._feeds[feed], default=0)
