"""The interface of the engines that run PySpark's plans: Spark and Sail.

A job runs on either engine. Spark is the reference, and the engine on AWS. Sail (module `sail`)
runs the same plans without Java. This module also defines the columns of all tables in a job, so
that no schema is inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

CUT = "Unexpected end of input stream"  # Java's message for truncated gzip data
GZIP = ".gz"
TEXT, TEXTS = StringType(), ArrayType(StringType())
LONG, INT, BOOL = LongType(), IntegerType(), BooleanType()


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


# A line of a dump with its place. `text` is the unchanged line. Each split of a file is a `block`,
# in which `number` increases.
LINES = columns(path=TEXT, block=LONG, number=LONG, value=TEXT, text=BinaryType())

# The core's result for a line: an object, the number in an end line, or an error. All columns are
# null if the line is blank.
READ = columns(key=TEXT, moment=TEXT, end=LONG, error=TEXT, note=TEXT)

# The attributes of an item in an export of the state's table, as far as they are needed. Numbers
# are text in an export.
_ATTRIBUTES = {"bucket": "S", "key": "S", "page": "N", "slot": "N", "at": "N", "line": "S"}
EXPORT = columns(
    Item=columns(**{name: columns(**{kind: TEXT}) for name, kind in _ATTRIBUTES.items()})
)

# The entry for a file in the manifest of an export.
EXPORT_FILES = columns(itemCount=LONG, dataFileS3Key=TEXT)

# A row of the state. `at` is its position in the format of corrections, and `committed` the commit
# time of its page in milliseconds since 1970.
ROWS = columns(key=TEXT, at=TEXT, committed=LONG, deleted=BOOL, moment=TEXT, line=TEXT)

# An operation of the log, as in the data source `tidings` and in the tables of a feed.
OPERATIONS = columns(
    cursor=TEXT,
    page=LONG,
    slot=INT,
    at=TimestampType(),
    event=TEXT,
    type=TEXT,
    id=TEXT,
    parents=TEXTS,
    timestamp=TimestampType(),
    tags=TEXTS,
    changed=TEXTS,
    data=TEXT,
    line=TEXT,
)


class Engine(Protocol):
    def text(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        """Return the lines of the files as `LINES`. Files named `*.gz` are gzipped.

        The column `value` is the column `text` as a string. It may be null if `text` is not UTF-8.
        """

    def replace(self, pattern: str, replacement: str) -> Column:
        """Return *replacement* with `$1`, `$2` and so on replaced by the groups of *pattern*.

        *pattern* must match the whole column `value`. If it does not match, return "" or the
        unchanged `value`.
        """

    def like(self, pattern: str) -> Column:
        """Return a column that is true if *pattern* matches a part of the column `value`."""

    def rows(
        self,
        spark: SparkSession,
        numbers: int,
        read: Callable[[Iterable[int]], Iterator[tuple[Any, ...]]],
        schema: StructType,
    ) -> DataFrame:
        """Return the rows that *read* yields. Tasks call *read* with parts of `range(numbers)`."""

    def observe(
        self, table: DataFrame, *counts: Column
    ) -> tuple[DataFrame, Callable[[DataFrame], dict[str, Any]]]:
        """Return *table*, and a function that returns *counts* of the table.

        Call the function after the returned table was computed, and pass a table that has the same
        rows, because an engine (Sail) may count the rows of the passed table.
        """

    def cores(self, spark: SparkSession) -> int: ...

    def progress(self, spark: SparkSession) -> tuple[int, int] | None:
        """Return the done part and the total of the current work; None if they are unknown."""


class Spark:
    """Implements `Engine`."""

    # More tasks would balance the load better, but each task costs a fifth of a second.
    TASKS_PER_CORE = 2

    def text(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        text = spark.read.option("lineSep", "\n").text(paths)
        return text.select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("number"),
            F.col("value"),
            F.col("value").cast("binary").alias("text"),
        )

    def replace(self, pattern: str, replacement: str) -> Column:
        return F.regexp_replace("value", pattern, replacement)

    def like(self, pattern: str) -> Column:
        return F.col("value").rlike(pattern)

    def rows(
        self,
        spark: SparkSession,
        numbers: int,
        read: Callable[[Iterable[int]], Iterator[tuple[Any, ...]]],
        schema: StructType,
    ) -> DataFrame:
        tasks = min(numbers, self.cores(spark) * self.TASKS_PER_CORE)
        rows = spark.sparkContext.parallelize(range(numbers), tasks).mapPartitions(read)
        return spark.createDataFrame(rows, schema, verifySchema=False)

    def observe(
        self, table: DataFrame, *counts: Column
    ) -> tuple[DataFrame, Callable[[DataFrame], dict[str, Any]]]:
        seen = Observation()
        return table.observe(seen, *counts), lambda _: seen.get

    def cores(self, spark: SparkSession) -> int:
        return spark.sparkContext.defaultParallelism

    def progress(self, spark: SparkSession) -> tuple[int, int] | None:
        """Return the numbers of completed and of all tasks in the active stages."""
        tracker = spark.sparkContext.statusTracker()
        active = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [stage for stage in active if stage is not None]
        if not stages:
            return None
        done = sum(stage.numCompletedTasks for stage in stages)
        return done, sum(stage.numTasks for stage in stages)


def error_text(path: str, error: Exception) -> str:
    """Return a message like that of Spark for a *path* that cannot be read because of *error*."""
    reason = "not a gzip file" if str(error).startswith("Not a gzipped file") else str(error)
    if isinstance(error, EOFError):
        reason = CUT
    return f"error while reading file {quote(path)}. \nCaused by: {type(error).__name__}: {reason}"
