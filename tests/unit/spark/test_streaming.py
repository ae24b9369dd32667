"""Streams: a copy and then the log in bounded batches, restarts, and falling off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.compat.oplog.wire import until
from tests.twin import Twin
from tests.unit.spark import feeds
from tests.unit.spark.feeds import tables
from tests.unit.spark.test_reading import WAYS, folded, of_feed
from tidings.core.model.cursors import Place
from tidings.spark import drain, lag
from tidings.spark.options import Gone, WrongOption
from tidings.spark.reader import StreamReader, TidingsSource
from tidings.sync.feed import on_endpoint

Rows = list[dict[str, Any]]


class Query:
    """Reads a stream as Spark does, batch by batch, and again after a restart."""

    def __init__(self, options: dict[str, str], **more: str) -> None:
        self._options = options | more
        self._reader, self.at = self._made(), ""
        self._end: dict[str, str] = {}

    def _made(self) -> StreamReader:
        source = TidingsSource(self._options)
        made = source.streamReader(source.schema())
        assert isinstance(made, StreamReader)
        return made

    def restart(self) -> None:
        self._reader = self._made()
        assert list(self._reader.partitions(self._end, self._end)) == []

    def batch(self) -> Rows:
        """Return the rows of the next batch; it is empty if there are no new pages."""
        start = self._end or self._reader.initialOffset()
        self._end = self._reader.latestOffset()
        return self._rows(start)

    def again(self, begin: dict[str, str]) -> Rows:
        """Return the rows of the last batch in a restarted process that has not committed it."""
        self._reader = self._made()
        return self._rows(begin)

    def all(self) -> list[Rows]:
        found = []
        while self.moves():
            found.append(self.batch())
        return found

    def moves(self) -> bool:
        return self._reader.latestOffset() != (self._end or self._reader.initialOffset())

    def stands(self) -> dict[str, str]:
        return self._end

    def _rows(self, start: dict[str, str]) -> Rows:
        tasks = self._reader.partitions(start, self._end)
        return [row for task in tasks for row in feeds.of_task(self._reader, task)]


def cursors(rows: Rows) -> list[str]:
    return sorted((row["cursor"] for row in rows), key=lambda cursor: cursor[8:])


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_comes_in_pieces_and_then_the_log(way: Any, twin: Twin, feed: str) -> None:
    """The objects come as inserts, the later operations unchanged, in batches of limited size."""
    feeds.fill(twin, feed, 4)
    feeds.projected(twin, feed)
    query = Query(way(twin, feed), maxBuckets="32", maxPages="2")

    copied = [query.batch(), query.batch()]
    posted = feeds.fill(twin, feed, 3, begin=20)
    until(query.moves)  # over HTTP the end of the log may be seen a moment later
    followed = query.all()

    rows = [row for batch in [*copied, *followed] for row in batch]
    assert {row["event"] for batch in copied for row in batch} == {"insert"}
    assert all(copied)
    assert [len(batch) for batch in followed] == [10, 5]
    assert cursors(followed[0]) + cursors(followed[1]) == posted
    assert folded([row["line"] for row in rows]) == folded(
        [each for _, each in of_feed(twin, feed)]
    )


@pytest.mark.parametrize("way", WAYS)
def test_T23_a_restart_goes_on_behind_the_last_batch(way: Any, twin: Twin, feed: str) -> None:
    """This includes a bounded stream: the reader gets its position before it is asked for more."""
    ids = feeds.fill(twin, feed, 5)
    feeds.projected(twin, feed)
    query = Query(way(twin, feed), start="oldest", maxPages="2")

    found = cursors(query.batch())
    query.restart()
    found += cursors(query.batch())
    query.restart()
    found += cursors(query.batch())

    assert found == ids
    assert not query.moves()


def test_a_first_batch_is_the_same_when_it_is_read_again(twin: Twin, feed: str) -> None:
    """From `now`, which has moved when the process that was killed is started again."""
    feeds.fill(twin, feed, 1)
    query = Query(tables(twin, feed), start="now", maxPages="2")
    assert not query.moves()
    ids = feeds.fill(twin, feed, 2)
    first = query.batch()

    feeds.fill(twin, feed, 1)
    moved = Query(tables(twin, feed), start="now")
    moved.moves()
    again = query.again({"cursor": _end(twin, feed), "begun": _end(twin, feed)})

    assert cursors(first) == cursors(again) == ids


def _end(twin: Twin, feed: str) -> str:
    pages = on_endpoint(feed, twin.dynamodb_url).stores.log.read(feed, 0)
    return pages[-1].end.encode()


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_fell_off_is_told_what_changed(way: Any, twin: Twin, feed: str) -> None:
    """Every object that changed since, deletions too, and then the log: nothing is missing."""
    feeds.fill(twin, feed, 2)
    feeds.projected(twin, feed)
    query = Query(way(twin, feed), start="oldest", maxPages="1", maxBuckets="64")
    rows = query.batch()
    feeds.fill(twin, feed, 3, begin=10)
    feeds.projected(twin, feed)
    feeds.trim(twin, feed, 4)

    rows += query.batch()
    query.restart()
    rows += [row for batch in query.all() for row in batch]

    assert folded([row["line"] for row in rows]) == folded(_latest(twin, feed))
    assert "delete" in {row["event"] for row in rows}


def _latest(twin: Twin, feed: str) -> list[str]:
    """Return the lines of the state: the log has lost its own."""
    place = on_endpoint(feed, twin.dynamodb_url)
    read = place.source().make()
    return [row.line for bucket in range(64) for row in read(feed, bucket, None)]


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_is_too_old_is_reset(way: Any, twin: Twin, feed: str) -> None:
    """The row `reset` comes before a copy of the whole state; with an option the query fails
    instead."""
    feeds.fill(twin, feed, 3)
    feeds.projected(twin, feed)
    old = Place(1, 0, 1000).encode()
    query = Query(way(twin, feed), start=old, maxBuckets="64")

    first, *others = query.batch()

    assert first["event"] == "reset"
    assert {name: value for name, value in first.items() if value is not None} == {"event": "reset"}
    assert folded([row["line"] for row in others]) == folded(_latest(twin, feed))
    with pytest.raises(Gone, match=f"does not continue after {old}"):
        Query(way(twin, feed), start=old, fellOff="fail").batch()


def test_a_batch_that_the_log_has_lost_meanwhile_is_made_up_for(twin: Twin, feed: str) -> None:
    """Planned, not committed, and given up before it is read again: what changed since, instead."""
    feeds.fill(twin, feed, 4)
    feeds.projected(twin, feed)
    query = Query(tables(twin, feed), start="oldest", maxPages="1")
    query.batch()
    begin = query.stands()
    query.batch()
    feeds.trim(twin, feed, 3)

    again = query.again(begin)

    assert folded([row["line"] for row in again]) == folded(_latest(twin, feed))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_after_which_the_log_is_gone_is_made_again(way: Any, twin: Twin, feed: str) -> None:
    """Its first batch was planned, not committed, and given up before it is read again."""
    feeds.fill(twin, feed, 2)
    feeds.projected(twin, feed)
    query = Query(way(twin, feed), maxBuckets="32", maxPages="1")
    begin = query._reader.initialOffset()
    query.batch()
    feeds.fill(twin, feed, 3, begin=10)
    feeds.projected(twin, feed)
    feeds.trim(twin, feed, 4)

    rows = query.again(begin)
    rows += [row for batch in query.all() for row in batch]

    assert rows[0]["event"] == "reset"
    assert folded([row["line"] for row in rows[1:]]) == folded(_latest(twin, feed))


def test_a_stream_is_of_the_log(twin: Twin, feed: str) -> None:
    """A state that is read forever is a copy followed by the log."""
    with pytest.raises(WrongOption, match="option what: must be log in a stream"):
        Query(tables(twin, feed), what="state")
    with pytest.raises(WrongOption, match="option start: must be copy, oldest, now or"):
        Query(tables(twin, feed), start="then").batch()


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
