"""Read the state as a table, several buckets in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tidings.core import limits
from tidings.core.state.rows import Row, RowReader, bucket_rows
from tidings.core.sync.corrections import Position
from tidings.core.sync.dumps import moment_of
from tidings.sync import schemas
from tidings.sync.engines import engine

Columns = tuple[str, str, int, bool, str, str]


class StateSource(Protocol):
    """A source of rows: the table itself, or an export of it."""

    def table(self, spark: SparkSession) -> DataFrame:
        """Return `schemas.ROWS`, one row for each object, including deleted ones."""
        ...

    def check(self) -> None:
        """Raise an error if the table was incomplete; called after it was read."""
        ...


@dataclass(frozen=True, slots=True)
class Buckets:
    """
    A reader of the state of *feed*: each bucket in one piece, many in parallel.

    Reads are strongly consistent, as the port requires. Every row includes at least everything that
    the follower `state` had handled when the reading began. *make* is sent to the tasks, because a
    client cannot be.
    """

    feed: str
    make: Callable[[], RowReader]

    def table(self, spark: SparkSession) -> DataFrame:
        return engine.current().rows(spark, limits.BUCKETS, self._rows, schemas.ROWS)

    def check(self) -> None:
        """Do nothing: an incomplete bucket raises an error itself."""

    def _rows(self, buckets: Iterable[int]) -> Iterator[Columns]:
        """
        Yield the rows in a task, with one store: creating it takes longer than a small bucket.
        """
        store = self.make()
        for bucket in buckets:
            yield from map(columns, bucket_rows(store, self.feed, bucket))


def columns(row: Row) -> Columns:
    if not row.whole:
        raise ValueError(f"the row of {row.key} is broken: `tidings verify` says more")
    at = Position(row.page, row.slot).encode()
    return row.key, at, row.at_ms, row.deleted, moment_of(row.line), row.line
