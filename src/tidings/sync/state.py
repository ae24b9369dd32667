"""Read the state as a table.

A job queries several buckets of the state in parallel. If a feed is too large for queries, the job
reads an export of the state's table on S3.

An export uses no read capacity. DynamoDB creates a folder `AWSDynamoDB/<export-id>/`. In this
folder, `manifest-files.json` lists the files in `data/`, which are gzipped and have one item of the
table per line.

The export shows the table at one moment, and objects change while it is created and read. Such
changes are harmless, because a correction is appended only if its object is still at the position
in the plan (`tidings.core.sync.apply`). An object that has changed is left as it is, and counted as
moved.

An object that is missing from the state has no position. If it was created and deleted after the
comparison, and its tombstone has expired, it looks like an object that never existed. So a plan
must expire. Let `through` be the page up to which the rows of the plan are complete. The plan
expires when half the lifetime of a tombstone has passed since the commit of `through`. For an
export, `through` is the checkpoint of the follower `state`. This checkpoint must be read with
strong consistency before the time of the export. Then the export includes everything up to this
checkpoint. A checkpoint that is read later would make the plan appear younger than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidings.core import limits
from tidings.core.state.rows import Row, bucket_rows
from tidings.core.sync.corrections import Position
from tidings.core.sync.dumps import moment_of
from tidings.sync.engine import EXPORT, EXPORT_FILES, ROWS
from tidings.sync.spark_session import current

if TYPE_CHECKING:
    from tidings.core.state.rows import ReadRows

Columns = tuple[str, str, int, bool, str, str]


class StateSource(Protocol):
    """A source of rows: the table itself, or an export of it."""

    def table(self, spark: SparkSession) -> DataFrame:
        """Return `ROWS` with one row for each object, including deleted objects."""

    def check(self) -> None:
        """Raise an error if the table was incomplete. Call this method after the table was read."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A reader of the state of *feed*, which reads several buckets in parallel.

    Reads are strongly consistent, as the port requires. So the rows include at least all pages that
    the follower `state` had handled when the read began. Each task calls *make* to create a client,
    because a client cannot be sent to a task.
    """

    feed: str
    make: Callable[[], ReadRows]

    def table(self, spark: SparkSession) -> DataFrame:
        return current().rows(spark, limits.BUCKETS, self._rows, ROWS)

    def check(self) -> None:
        """Do nothing, because reading an incomplete bucket raises an error."""

    def _rows(self, buckets: Iterable[int]) -> Iterator[Columns]:
        """Yield the rows of the *buckets* of one task.

        All buckets are read with one client, because creating a client takes longer than reading a
        bucket.
        """
        read = self.make()
        for bucket in buckets:
            yield from map(columns, bucket_rows(read, self.feed, bucket))


def columns(row: Row) -> Columns:
    if not row.is_complete:
        raise ValueError(f"the row of {row.key} is broken; `tidings verify` reports the details")
    at = Position(row.page, row.slot).encode()
    return row.key, at, row.at_ms, row.deleted, moment_of(row.line), row.line


FILES = "manifest-files.json"
_MOMENT = r'^\{"event":"[a-z]+","timestamp":"([^"]*)Z"'


class BadExport(Exception):
    """The export is empty or incomplete. The message says how."""


class Exported:
    """The rows of *feed* in the export *folder*. Implements `StateSource`."""

    def __init__(self, feed: str, folder: str) -> None:
        self._feed, self._folder = feed, folder.rstrip("/")
        self._items = Observation()
        self._items_wanted = 0

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the feed in the export.

        Raises:
            BadExport: the export has no items.
        """
        listed = spark.read.schema(EXPORT_FILES).json(f"{self._folder}/{FILES}").collect()
        # A partition of the table without items has an empty file.
        files = [each for each in listed if each["itemCount"]]
        if not files:
            raise BadExport(f"{self._folder}: {FILES} names no file with items")
        self._items_wanted = sum(each["itemCount"] for each in files)
        names = (each["dataFileS3Key"].rpartition("/")[2] for each in files)
        paths = [f"{self._folder}/data/{name}" for name in names]
        reader = spark.read.schema(EXPORT).option("mode", "FAILFAST")
        items = reader.option("lineSep", "\n").json(paths).select("Item.*")
        counted = items.observe(self._items, F.count(F.lit(1)).alias("count"))
        from tidings.aws.dynamodb.state import row_bucket  # imports boto3, which is optional

        buckets = [row_bucket(self._feed, number) for number in range(limits.BUCKETS)]
        return counted.where(F.col("bucket.S").isin(buckets)).select(*_columns())

    def check(self) -> None:
        """Check the number of items. Call this method after the table was read.

        Raises:
            BadExport: the manifest has another number of items.
        """
        count = int(self._items.get["count"])
        if count != self._items_wanted:
            rule = f"has {count:,} items, but {FILES} lists {self._items_wanted:,}"
            raise BadExport(f"{self._folder}: {rule}")


def _columns() -> list[Column]:
    """Return the same columns as `columns`, but computed by Spark from items of the export."""
    line = F.col("line.S")
    return [
        F.col("key.S").alias("key"),
        F.concat(_hexadecimal("page", 10), _hexadecimal("slot", 6)).alias("at"),
        F.col("at.N").cast("long").alias("committed"),
        (F.substring(line, 11, 6) == "delete").alias("deleted"),
        F.regexp_extract(line, _MOMENT, 1).alias("moment"),
        line.alias("line"),
    ]


def _hexadecimal(name: str, digits: int) -> Column:
    return F.lpad(F.lower(F.hex(F.col(f"{name}.N").cast("long"))), digits, "0")
