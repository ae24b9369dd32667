"""The state as a table, read bucket by bucket side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from tidings.core import limits
from tidings.core.state.rows import Row, RowReader, bucket_rows
from tidings.core.sync.corrections import Position
from tidings.core.sync.dump import moment_of
from tidings.sync import schemas
from tidings.sync.engines import engine

Columns = tuple[str, str, int, bool, str, str]


class StateSource(Protocol):
    """Where rows come from: the table itself, or an export of it."""

    def table(self, spark: SparkSession) -> DataFrame:
        """`schemas.ROWS`, one row for each object, deleted ones included."""
        ...

    def check(self) -> None:
        """Called when the table was read: raises where it was not whole."""
        ...


@dataclass(frozen=True, slots=True)
class Buckets:
    """
    Reads the state of *feed*, every bucket in one piece, many side by side.

    Strongly consistent, as the port is: every row shows at least what the follower `state` had
    handled when the reading began. *make* is sent to the tasks: a client cannot be.
    """

    feed: str
    make: Callable[[], RowReader]

    def table(self, spark: SparkSession) -> DataFrame:
        return engine.current().rows(spark, limits.BUCKETS, self._rows, schemas.ROWS)

    def check(self) -> None:
        """A bucket that is not read to its end is an error by itself."""

    def _rows(self, buckets: Iterable[int]) -> Iterator[Columns]:
        """Of a task: making a store takes longer than reading a small bucket."""
        store = self.make()
        for bucket in buckets:
            yield from map(columns, bucket_rows(store, self.feed, bucket))


def columns(row: Row) -> Columns:
    if not row.whole:
        raise ValueError(f"the row of {row.key} is broken: `tidings verify` says more")
    at = Position(row.page, row.slot).encode()
    return row.key, at, row.at_ms, row.deleted, moment_of(row.line), row.line
