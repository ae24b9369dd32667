"""The operations of a log by bucket, while it fits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tidings.core.state.rows import Row


class MemorySpill:
    """Implements `Spill`."""

    def __init__(self, buckets: Collection[int] = range(limits.BUCKETS)) -> None:
        self.buckets = buckets
        self._buckets: defaultdict[int, list[Row]] = defaultdict(list)

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._buckets[row.bucket].append(row)

    def rows(self, bucket: int) -> Iterator[Row]:
        return iter(tuple(self._buckets[bucket]))
