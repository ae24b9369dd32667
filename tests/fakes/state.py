"""The latest operation of each object, by bucket and key."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.state.rows import ABSENT, Lines, bucket_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.state.differences import Difference
    from tidings.core.state.rows import Row

_ROW_OVERHEAD_BYTES = 100  # what DynamoDB counts for a row beside its key and line


class MemoryState:
    """Implements `StateStore` and `Repairs`."""

    def __init__(self) -> None:
        self._buckets: defaultdict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
        self._lock = Lock()

    def write(self, feed: str, rows: Sequence[Row]) -> int:
        with self._lock:
            return sum(not self._put(self._buckets[feed, row.bucket], row) for row in rows)

    def _put(self, rows: dict[str, Row], row: Row) -> bool:
        """Whether *row* stands now."""
        there = rows.get(row.key)
        if there is None or there.page == ABSENT or _position(there) < _position(row):
            rows[row.key] = row
        return rows[row.key] == row

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        return self._read(feed, bucket, after)[0]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        rows, cut = self._read(feed, bucket, after)
        return Lines([row.line for row in rows], rows[-1].key if cut else None)

    def _read(self, feed: str, bucket: int, after: str | None) -> tuple[list[Row], bool]:
        """The rows, and whether there are more."""
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
        if there == difference.found:
            rows.pop(difference.key, None)
            if wanted is not None:
                rows[difference.key] = wanted
        return rows.get(difference.key) == wanted

    def expire(self, now_ms: int) -> None:
        """Delete the rows whose time has come, as DynamoDB's TTL does some time or other."""
        with self._lock:
            for rows in self._buckets.values():
                for key in [key for key, row in rows.items() if 0 < row.expires_ms <= now_ms]:
                    del rows[key]


def _position(row: Row) -> tuple[int, int]:
    return row.page, row.slot
