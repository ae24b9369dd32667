"""The state as a table, read bucket by bucket side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.corrections import Position
from tidings.core.dumps import moment_of

from . import schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from tidings.core.ports import StateStore
    from tidings.core.state import Row

    Columns = tuple[str, str, bool, str, str]

TASKS_PER_CORE = 4  # so that no core waits long for the last one; each writes a file of its own


class StateSource(Protocol):
    """Where rows come from: the table itself, or an export of it."""

    def table(self, spark: SparkSession) -> DataFrame:
        """`schemas.ROWS`, one row for each object, deleted ones included."""
        ...

    def check(self) -> None:
        """Called when the table was read: raises where it was not whole."""
        ...


class StateMaker(Protocol):
    """Builds the store in the process that reads it: a client cannot be sent to another one."""

    def __call__(self) -> StateStore: ...


@dataclass(frozen=True, slots=True)
class Buckets:
    """
    Reads the state of *feed*, every bucket in one piece, many side by side.

    Strongly consistent, as the port is: every row shows at least what the follower `state` had
    handled when the reading began. *make* is sent to the tasks.
    """

    feed: str
    make: StateMaker

    def table(self, spark: SparkSession) -> DataFrame:
        context = spark.sparkContext
        tasks = min(limits.BUCKETS, context.defaultParallelism * TASKS_PER_CORE)
        buckets = context.parallelize(range(limits.BUCKETS), tasks)
        return spark.createDataFrame(buckets.flatMap(self.rows), schemas.ROWS, verifySchema=False)

    def check(self) -> None:
        """A bucket that is not read to its end is an error by itself."""

    def rows(self, bucket: int) -> Iterator[Columns]:
        store, after = self.make(), None
        while found := store.read(self.feed, bucket, after):
            yield from map(columns, found)
            after = found[-1].key


def columns(row: Row) -> Columns:
    at = Position(row.page, row.slot).encode()
    return row.key, at, row.deleted, moment_of(row.line), row.line
