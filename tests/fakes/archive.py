"""The parts of the archive, by their spans, and the ledger of erasures."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core.archive.generations import MOVED, list_parts
from tidings.core.erasure.records import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.archive.segments import Generation, Span
    from tidings.core.erasure.records import Erasure


class MemoryArchive:
    """Implements `ArchiveStore`."""

    def __init__(self) -> None:
        self._feeds: defaultdict[str, dict[Span, bytes]] = defaultdict(dict)
        self._generations: defaultdict[str, dict[int, Generation]] = defaultdict(dict)
        self._lock = Lock()

    def put(self, feed: str, span: Span, body: bytes) -> None:
        with self._lock:
            self._feeds[feed][span] = body

    def get(self, feed: str, span: Span) -> bytes | None:
        with self._lock:
            return self._feeds[feed].get(span)

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        return list_parts(self, feed, after, limit)

    def parts(self, feed: str, generation: int, after: int, limit: int) -> Sequence[Span]:
        with self._lock:
            spans = [each for each in sorted(self._feeds[feed]) if each.generation == generation]
            return [span for span in spans if span.last > after][:limit]

    def generations(self, feed: str) -> Mapping[int, Generation]:
        with self._lock:
            return (
                dict.fromkeys({span.generation for span in self._feeds[feed]} - {0}, MOVED)
                | self._generations[feed]
            )

    def begin(self, feed: str, number: int, generation: Generation) -> bool:
        with self._lock:
            return self._generations[feed].setdefault(number, generation) is generation

    def remove(self, feed: str, span: Span) -> None:
        with self._lock:
            self._feeds[feed].pop(span, None)

    def size(self, feed: str) -> int:
        with self._lock:
            return sum(len(body) for body in self._feeds[feed].values())


class MemoryLedger:
    """Implements `Ledger`."""

    def __init__(self) -> None:
        self._feeds: defaultdict[str, dict[str, Erasure]] = defaultdict(dict)

    def add(self, feed: str, erasure: Erasure) -> None:
        self._feeds[feed][erasure.id] = from_json(to_json(erasure))

    def entries(self, feed: str) -> Sequence[Erasure]:
        return [erasure for _, erasure in sorted(self._feeds[feed].items())]

    def remove(self, feed: str, erasure_id: str) -> None:
        self._feeds[feed].pop(erasure_id, None)
