"""What a batch of changes costs tables that follow a feed, small ones and large ones."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tidings.core.model.cursors import PAGE_END, Place
from tidings.lake import iceberg
from tidings.lake.columns import parse
from tidings.lake.feed_tables import FeedTables
from tidings.lake.warehouse import EXTENSIONS, Warehouse

from bench.sections import Section

TARGET = 1.5  # the cost of a batch may grow so many times while the tables grow tenfold
SMALL, LARGE = 100_000, 1_000_000  # objects in `latest`
_BATCH = 100_000
_BATCHES = 4  # of each size in turn; the first of each warms up
_PAGE = 1_000
_COLUMNS = '{"video": {"n": "bigint", "title": "string"}}'
_BEGUN_S = 1_767_225_600


def measure() -> Section:
    """SHARE=0.1 takes tables and batches of a tenth."""
    share = float(os.environ.get("SHARE", "1"))
    small, large, count = (int(each * share) for each in (SMALL, LARGE, _BATCH))
    with tempfile.TemporaryDirectory() as folder, _session(folder) as spark:
        tables = {size: _tables(spark, folder, size) for size in (small, large)}
        for size, each in tables.items():
            _take(each, size, size)
        seconds: dict[int, list[float]] = {size: [] for size in tables}
        for _ in range(_BATCHES):
            for size, each in tables.items():
                seconds[size].append(_take(each, count, size))
        typical = {size: statistics.median(each[1:]) for size, each in seconds.items()}
    ratio = typical[large] / typical[small]
    return Section(
        f"Tables take a batch of {count:,} changes",
        f"with {large:,} objects at most {TARGET} times the cost with {small:,}",
        [
            *((f"{size:,} objects", f"{each:.1f} s") for size, each in typical.items()),
            ("the large ones, as times of the small ones", f"{ratio:.2f}"),
            ("operations a second, the large ones", f"{count / typical[large]:,.0f}"),
        ],
        ratio <= TARGET,
        [
            "`local[2]`; of objects all over the table, into `history`, `latest` and a table of a"
            f" type that has half of them. The median of {_BATCHES - 1} batches each, in turn."
        ],
    )


@contextmanager
def _session(folder: str) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": str(Path(folder, "spark")),
        "spark.jars": str(iceberg.jar()),
        **EXTENSIONS,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _tables(spark: SparkSession, folder: str, size: int) -> FeedTables:
    warehouse = Warehouse(str(Path(folder, f"lake-{size}")))
    session = warehouse.session(spark)
    tables = FeedTables(session, warehouse, "main", parse(_COLUMNS), _ignored)
    tables.create()
    tables.catch_up()
    return tables


def _take(tables: FeedTables, count: int, objects: int) -> float:
    """Seconds for a batch of *count* changes, spread over *objects*."""
    first = tables.place.page + 1
    rows = _changes(tables.session, first, count, objects).persist()
    rows.count()
    last = first + (count - 1) // _PAGE
    begun = time.perf_counter()
    tables.take(rows, Place(last, PAGE_END, _BEGUN_S + last))
    taken = time.perf_counter() - begun
    rows.unpersist()
    return taken


def _changes(session: SparkSession, first: int, count: int, objects: int) -> DataFrame:
    """As the source tells operations; each of another object, all over the order of ids."""
    number = F.col("id")
    of = (number * (objects // count) + first) % objects
    kind = F.when(of % 2 == 0, F.lit("video")).otherwise(F.lit("user"))
    page, slot = (number / _PAGE).cast("long") + first, (number % _PAGE).cast("int")
    seconds = page + _BEGUN_S
    data = F.format_string('{"n":%d,"title":"%s"}', number, F.sha2(number.cast("string"), 256))
    rows = session.range(count).select(
        F.format_string("%08x%010x%06x", seconds, page, slot).alias("cursor"),
        page.alias("page"),
        slot.alias("slot"),
        F.timestamp_seconds(seconds).alias("at"),
        F.lit("update").alias("event"),
        kind.alias("type"),
        F.sha1(of.cast("string")).alias("id"),
        F.array(F.lit("user/1")).alias("parents"),
        F.timestamp_seconds(seconds).alias("timestamp"),
        F.lit(None).cast("array<string>").alias("tags"),
        F.lit(None).cast("array<string>").alias("changed"),
        data.alias("data"),
    )
    line = '{"event":"update","type":"%s","id":"%s","parents":["user/1"],"data":%s}'
    return rows.withColumn("line", F.format_string(line, "type", "id", "data"))


def _ignored(phase: str) -> None:
    """Only the whole is measured."""
