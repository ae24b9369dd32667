"""The sink: its appends, which are not repeated, and its refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.twin import Twin
from tests.unit.spark import feeds
from tests.unit.spark.feeds import http
from tests.unit.spark.test_reading import of_feed
from tidings.client.poster import BATCH_BYTES_MAX, BATCH_LINES_MAX, encode
from tidings.core.model import timestamps
from tidings.spark import options
from tidings.spark.options import NotAppended, WrongColumn, WrongOption
from tidings.spark.sink import StreamWriter, Writer, check_schema, pages

NAMES = ["event", "type", "id", "data"]
SCHEMA = StructType([StructField(name, StringType()) for name in NAMES])


TEXTS = pa.list_(pa.string())
EVERY_COLUMN = pa.schema(
    {name: pa.string() for name in ("event", "type", "id", "data")}
    | {name: TEXTS for name in ("parents", "tags", "changed")}
    | {"timestamp": pa.timestamp("us", tz="America/New_York")}
)
AN_HOUR_TWICE = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # the clocks of New York go back at 6
TWO_HOURS = (timedelta(), timedelta(hours=2))
texts = st.none() | st.text()
arrays = st.none() | st.lists(texts, max_size=3)
told = st.fixed_dictionaries(
    dict.fromkeys(("event", "type", "id"), texts)
    | dict.fromkeys(("parents", "tags", "changed"), arrays)
    | {
        "data": st.none() | st.sampled_from(['{"a": 1.0, "é": "\\u00e9"}', "null", " 5"]),
        "timestamp": st.none() | st.builds(AN_HOUR_TWICE.__add__, st.timedeltas(*TWO_HOURS)),
    }
)


def rows(count: int, data: str | None = '{"n":1}', event: str = "update") -> list[pa.RecordBatch]:
    """Return rows in one batch, as Spark passes them."""
    told = [{"event": event, "type": "video", "id": f"x{n}", "data": data} for n in range(count)]
    return [pa.RecordBatch.from_pylist(told)]


def writer(twin: Twin, feed: str, schema: StructType = SCHEMA, **more: str) -> Writer:
    return Writer(options.parse(http(twin, feed) | more), schema, overwrite=False)


def lines(twin: Twin, feed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in of_feed(twin, feed)]


def test_a_task_that_is_tried_again_appends_nothing_twice(twin: Twin, feed: str) -> None:
    """A page is recognized by its number in the partition, also if the first attempt was
    incomplete."""
    sink = writer(twin, feed)
    count = BATCH_LINES_MAX + 5

    sink.write(iter(rows(BATCH_LINES_MAX)))
    again = [sink.write(iter(rows(count))), sink.write(iter(rows(count)))]

    assert [written.operations for written in again] == [count, count]
    assert [line["id"] for line in lines(twin, feed)] == [f"x{n}" for n in range(count)]


@given(st.lists(told, max_size=8), st.integers(1, 8))
def test_a_row_is_spelt_as_the_operation_that_it_is(rows: list[dict[str, Any]], size: int) -> None:
    """It is equal byte by byte, as a repeat must not be appended again after an update."""
    batches = pa.Table.from_pylist(rows, EVERY_COLUMN).to_batches(size)

    found = [line for _, page in pages(batches, EVERY_COLUMN.names) for line in page]

    assert found == [encode(_operation(row)) for row in rows]


def _operation(row: dict[str, Any]) -> dict[str, Any]:
    given = {name: row[name] for name in EVERY_COLUMN.names if row[name] is not None}
    if "timestamp" in given:
        seconds = (given["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
        given["timestamp"] = timestamps.from_ms(round(seconds * 1000))
    if "data" in given:
        given["data"] = json.loads(given["data"])
    return given


def test_a_page_holds_so_many_rows_and_bytes() -> None:
    """Pages span batches, each with the number of its first row; a longer row has its own page."""
    few = rows(BATCH_LINES_MAX // 2)
    long = rows(1, data=json.dumps("x" * BATCH_BYTES_MAX))
    half = rows(3, data=json.dumps("x" * (BATCH_BYTES_MAX // 2 - 100)))

    found = [(first, len(page)) for first, page in pages([*few * 3, *long, *half], NAMES)]

    count = BATCH_LINES_MAX // 2
    alone = 3 * count
    assert found == [(0, 2 * count), (2 * count, count), (alone, 1), (alone + 1, 2), (alone + 3, 1)]


def test_a_job_that_has_a_name_appends_nothing_twice(twin: Twin, feed: str) -> None:
    """Run again with the same rows; without a name it is another job."""
    for job in ("nightly", "nightly"):
        writer(twin, feed, job=job).write(iter(rows(3)))
    assert len(lines(twin, feed)) == 3

    writer(twin, feed).write(iter(rows(3)))
    assert len(lines(twin, feed)) == 6


def test_a_batch_that_comes_again_with_other_rows_is_refused(twin: Twin, feed: str) -> None:
    """It is unknown which of the rows are in the feed already."""
    writer(twin, feed, job="j").write(iter(rows(3)))

    with pytest.raises(NotAppended, match="from row 0 on was already posted with other rows"):
        writer(twin, feed, job="j").write(iter(rows(4)))

    assert len(lines(twin, feed)) == 3


def test_an_invalid_row_is_named_and_nothing_of_its_page_is_there(twin: Twin, feed: str) -> None:
    """The error has the field and the rule; data that is not JSON cannot become another field."""
    mixed = [*rows(2), *rows(1, event="upsert")]

    with pytest.raises(NotAppended, match="partition 0, row 2: event: must be one of insert"):
        writer(twin, feed).write(iter(mixed))
    with pytest.raises(NotAppended, match="row 1: data is not JSON"):
        writer(twin, feed).write(iter([*rows(1), *rows(1, data='1,"type":"other"')]))
    assert lines(twin, feed) == []


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (["event", "type"], "column id is missing"),
        ([*NAMES, "colour"], "column colour is unknown; the columns are event, type, id"),
        ([*NAMES, "id"], "column id occurs more than once"),
    ],
)
def test_T39_columns_that_make_no_operation_are_refused(fields: list[str], rule: str) -> None:
    """Nothing is sent before that."""
    with pytest.raises(WrongColumn, match=rule):
        check_schema(StructType([StructField(name, StringType()) for name in fields]))


def test_a_column_of_another_type_is_refused() -> None:
    """The error has the required type."""
    schema = StructType([*SCHEMA.fields[:3], StructField("data", LongType())])

    with pytest.raises(WrongColumn, match="column data is bigint, must be string; `to_json`"):
        check_schema(schema)


def test_a_sink_is_reached_over_http_and_appends(twin: Twin, feed: str) -> None:
    """A log is not overwritten, and tables are written by the feed alone."""
    with pytest.raises(WrongOption, match="option mode: must be append"):
        Writer(options.parse(http(twin, feed)), SCHEMA, overwrite=True)
    with pytest.raises(WrongOption, match="option url: is required to write"):
        Writer(options.parse(feeds.tables(twin, feed)), SCHEMA, overwrite=False)


def test_a_stream_that_knows_no_batch_writes_nothing(twin: Twin, feed: str) -> None:
    """Without the number of its batch a repeat could not be recognized."""
    sink = StreamWriter(options.parse(http(twin, feed)), SCHEMA, overwrite=False)

    with pytest.raises(NotAppended, match="number of this batch"):
        sink.write(iter(rows(1)))


def test_a_feed_is_copied_into_another(spark: SparkSession, twin: Twin, feed: str) -> None:
    """The rows of a read can be written: each operation is the same, at another position."""
    feeds.fill(twin, feed, 2)
    other = next(feeds.UNUSED)

    frame = feeds.read(spark, feeds.tables(twin, feed)).coalesce(1).orderBy("page", "slot")
    frame.write.format("tidings").options(**http(twin, other)).mode("append").save()

    assert lines(twin, other) == lines(twin, feed)


def test_a_streamed_batch_that_comes_again_appends_nothing_twice(
    spark: SparkSession, twin: Twin, feed: str, tmp_path: Path
) -> None:
    """Its commit is removed from the checkpoint, as if the process had been killed before it."""
    feeds.fill(twin, feed, 2)
    other = next(feeds.UNUSED)

    def run() -> None:
        options = feeds.tables(twin, feed) | {"start": "oldest", "partitions": "1"}
        frame: DataFrame = spark.readStream.format("tidings").options(**options).load()
        asked = frame.writeStream.format("tidings").options(**http(twin, other))
        query = asked.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(120)

    run()
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink()
    run()

    assert (tmp_path / "commits" / "0").exists()
    assert lines(twin, other) == lines(twin, feed)
