"""Data derived from the log: rows, removed parents, summaries of tags; and tombstones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from tests.fakes.records import MemoryRecords
from tidings.core import limits
from tidings.core.changeagent.tag_index import Summary
from tidings.core.state.removed_parents import RemovedParents
from tidings.core.state.rows import ABSENT, NOTHING, Difference, Lines, Overwritten, Row, bucket_of
from tidings.core.state.sums import Sums
from tidings.core.state.tombstones import TombstoneStore

_ROW_OVERHEAD_BYTES = 100  # what DynamoDB counts for a row in addition to its key and line


class MemoryState:
    """Implements `StateStore`."""

    def __init__(self) -> None:
        self._buckets: defaultdict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
        self._lock = Lock()

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        with self._lock:
            return [self._put(self._buckets[feed, row.bucket], row) for row in rows]

    def _put(self, rows: dict[str, Row], row: Row) -> Overwritten | None:
        there = rows.get(row.key)
        if there is not None and there.page != ABSENT and _position(there) >= _position(row):
            return None
        rows[row.key] = row
        if there is None:
            return NOTHING
        known = ABSENT not in (there.page, there.slot)
        return Overwritten(there.page, there.slot, not there.expires_ms) if known else None

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        return self._read(feed, bucket, after)[0]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        rows, cut = self._read(feed, bucket, after)
        after = rows[-1].key if cut else None
        return Lines([row.line for row in rows], [row.page for row in rows], after)

    def _read(self, feed: str, bucket: int, after: str | None) -> tuple[list[Row], bool]:
        """Return the rows, and True if there are more."""
        with self._lock:
            rows = self._buckets[feed, bucket]
            found: list[Row] = []
            size = 0
            for key in sorted(key for key in rows if after is None or key > after):
                size += len(key) + len(rows[key].line) + _ROW_OVERHEAD_BYTES
                if found and size > limits.READ_PAGES_BYTES_MAX:
                    return found, True
                found.append(rows[key])
            return found, False

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        with self._lock:
            found = (self._buckets[feed, bucket_of(key)].get(key) for key in keys)
            return [row for row in found if row is not None]

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        with self._lock:
            return [self._swap(self._buckets[feed, each.bucket], each) for each in differences]

    def _swap(self, rows: dict[str, Row], difference: Difference) -> bool:
        there, wanted = rows.get(difference.key), difference.wanted
        if there == difference.stored:
            rows.pop(difference.key, None)
            if wanted is not None:
                rows[difference.key] = wanted
        return rows.get(difference.key) == wanted

    def expire(self, now_ms: int) -> None:
        """Delete the expired rows, as DynamoDB's TTL does at some time."""
        with self._lock:
            for rows in self._buckets.values():
                for key in [key for key, row in rows.items() if 0 < row.expires_ms <= now_ms]:
                    del rows[key]


def _position(row: Row) -> tuple[int, int]:
    return row.page, row.slot


class MemorySums:
    """Implements `SumStore`."""

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}
        self._lock = Lock()

    def read(self, feed: str) -> Sums | None:
        return self._sums.get(feed)

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        with self._lock:
            there = self._sums.get(feed)
            if (there.version if there else 0) == sums.version - 1:
                self._sums[feed] = sums
            return self._sums.get(feed) == sums


class MemoryRemovedParents:
    """Implements `RemovedParentsStore`."""

    def __init__(self) -> None:
        self._feeds: defaultdict[str, dict[int, RemovedParents]] = defaultdict(dict)
        self._lock = Lock()

    def write(self, feed: str, removed_parents: Sequence[RemovedParents]) -> None:
        with self._lock:
            for each in removed_parents:
                self._feeds[feed].setdefault(each.page, each)

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        with self._lock:
            pages = self._feeds[feed]
            wanted = [number for number in sorted(pages) if first <= number <= last]
            return [replace(pages[number], expires_ms=0) for number in wanted]

    def rewrite(self, feed: str, removed: RemovedParents, body: str | bytes) -> bool:
        with self._lock:
            pages = self._feeds[feed]
            stored = pages.get(removed.page)
            if stored is not None and stored.body == removed.body:
                stored = pages[removed.page] = replace(stored, body=body)
            return stored is not None and stored.body == body

    def expire(self, now_ms: int) -> None:
        """Delete the expired tombstones, as DynamoDB's TTL does at some time."""
        with self._lock:
            for pages in self._feeds.values():
                for number in [n for n, each in pages.items() if 0 < each.expires_ms <= now_ms]:
                    del pages[number]


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


class MemoryTombstones(TombstoneStore):
    def __init__(self) -> None:
        super().__init__(MemoryRecords())
