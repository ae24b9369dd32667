"""A stream that is read to its end, in as many batches as it needs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.twin import Twin
from tests.unit.spark import feeds
from tests.unit.spark.feeds import tables
from tidings.spark import drain, lag


def test_a_stream_is_drained(spark: SparkSession, twin: Twin, feed: str, tmp_path: Path) -> None:
    """It reads all existing operations once, in batches of limited size; then the new ones, then
    nothing.
    """
    options = tables(twin, feed) | {"start": "oldest", "maxPages": "2", "partitions": "1"}

    def write(frame: DataFrame) -> DataStreamWriter:
        writer = frame.select("cursor").writeStream.format("json")
        return writer.option("path", f"{tmp_path}/out").option(
            "checkpointLocation", f"{tmp_path}/checkpoint"
        )

    def read() -> list[str]:
        return sorted(row.cursor for row in spark.read.json(f"{tmp_path}/out").collect())

    ids = feeds.fill(twin, feed, 5)
    assert drain(spark, options, write) == 3
    assert read() == ids
    ids += feeds.fill(twin, feed, 1, begin=25)
    assert (drain(spark, options, write), read()) == (1, ids)
    assert (drain(spark, options, write), read()) == (0, ids)


def test_how_far_a_query_is_behind(
    spark: SparkSession, twin: Twin, feed: str, tmp_path: Path
) -> None:
    """By the end of its last batch, in pages."""
    options = tables(twin, feed) | {"start": "oldest", "maxPages": "2", "partitions": "1"}
    feeds.fill(twin, feed, 5)
    frame = spark.readStream.format("tidings").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert lag(query, options) == 3
