"""The operations of a log by bucket, in files: a log may be larger than memory."""

from __future__ import annotations

import marshal
from collections import defaultdict
from typing import TYPE_CHECKING

from tidings.core.state.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class FileSpill:
    """Implements `Spill` below *folder*, a file a bucket. Read by the process that wrote it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, rows: Sequence[Row]) -> None:
        buckets: defaultdict[int, list[tuple[str, int, int, int, str, int]]] = defaultdict(list)
        for row in rows:
            fields = (row.key, row.page, row.slot, row.at_ms, row.line, row.expires_ms)
            buckets[row.bucket].append(fields)
        for bucket, found in buckets.items():
            with self._path(bucket).open("ab") as file:
                marshal.dump(found, file)

    def rows(self, bucket: int) -> Iterator[Row]:
        if not self._path(bucket).exists():
            return
        with self._path(bucket).open("rb") as file:
            while file.peek(1):
                for fields in marshal.load(file):
                    yield Row(*fields)

    def _path(self, bucket: int) -> Path:
        return self._folder / str(bucket)
