"""
What the engines of PySpark have not in common, so that one program runs on each.

Spark is the reference, and the cloud's. Sail (`sail`) runs the same plans without Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote


class Engine(Protocol):
    def text(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        """
        `schemas.LINES` of the files. Gzip is known by the ending `.gz`. *value* is *text*, and may
        be null where that is no UTF-8.
        """
        ...

    def replaced(self, pattern: str, replacement: str) -> Column:
        """*replacement* with the groups of *pattern*, where it matches all of *value*."""
        ...

    def like(self, pattern: str) -> Column:
        """Whether *value* has *pattern*."""
        ...

    def rows(
        self,
        spark: SparkSession,
        numbers: int,
        read: Callable[[Iterable[int]], Iterator[tuple[Any, ...]]],
        schema: StructType,
    ) -> DataFrame:
        """What *read* yields, side by side for parts of the numbers below *numbers*."""
        ...

    def observed(
        self, table: DataFrame, *counts: Column
    ) -> tuple[DataFrame, Callable[[DataFrame], dict[str, Any]]]:
        """*table*, and what tells *counts* once it was computed, of a table with the same rows."""
        ...

    def cores(self, spark: SparkSession) -> int: ...

    def progress(self, spark: SparkSession) -> tuple[int, int] | None:
        """How much of what is read or computed now is done, of how much; None: nobody knows."""
        ...


class Spark:
    """Implements `Engine`."""

    TASKS_PER_CORE = 2  # so that none waits long for the last one; each costs a fifth of a second

    def text(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        text = spark.read.option("lineSep", "\n").text(paths)
        return text.select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("number"),
            F.col("value"),
            F.col("value").cast("binary").alias("text"),
        )

    def replaced(self, pattern: str, replacement: str) -> Column:
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

    def observed(
        self, table: DataFrame, *counts: Column
    ) -> tuple[DataFrame, Callable[[DataFrame], dict[str, Any]]]:
        seen = Observation()
        return table.observe(seen, *counts), lambda _: seen.get

    def cores(self, spark: SparkSession) -> int:
        return spark.sparkContext.defaultParallelism

    def progress(self, spark: SparkSession) -> tuple[int, int] | None:
        """In tasks of the stages that run."""
        tracker = spark.sparkContext.statusTracker()
        active = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [stage for stage in active if stage is not None]
        if not stages:
            return None
        done = sum(stage.numCompletedTasks for stage in stages)
        return done, sum(stage.numTasks for stage in stages)


def current() -> Engine:
    """That of this process's session."""
    if not is_remote():
        return Spark()
    from tidings.sync.engines.sail import Sail

    return Sail()
