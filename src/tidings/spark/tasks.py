"""
The work of the tasks of a read: read a stretch of the log or buckets of the state into batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa  # type: ignore[import-untyped]

from tidings.core.model.cursors import Replication
from tidings.core.model.filters import Filter
from tidings.spark import columns
from tidings.spark.backends.backend import Backend, within
from tidings.spark.columns import Piece
from tidings.spark.offsets import Log, Rows

Task = Log | Rows


@dataclass(frozen=True, slots=True)
class Work:
    """The parameters of every task: backend, columns and filter."""

    backend: Backend
    names: tuple[str, ...]
    wanted: Filter

    def do(self, task: Task) -> Iterator[pa.RecordBatch]:
        if isinstance(task, Rows) and task.resets:
            yield columns.reset_row(self.names)
        yield from columns.batches(self._pieces(task), self.names, self.wanted)

    def _pieces(self, task: Task) -> Iterator[Piece]:
        if isinstance(task, Log):
            yield from within(self.backend.log(task.after, task.last), task)
            return
        yield from self.backend.rows(task.copy, task.end)


def of_rows(copy: Replication, end: int, count: int, *, resets: bool = False) -> list[Rows]:
    """Return the buckets from that of *copy* to before *end*, in at most *count* tasks."""
    buckets = end - copy.bucket
    pieces = min(count, buckets)
    cuts = (
        [copy.bucket + buckets * piece // pieces for piece in range(pieces + 1)] if pieces else []
    )
    return [
        Rows(replace(copy, bucket=first), last, resets and first == copy.bucket)
        for first, last in pairwise(cuts)
    ]
