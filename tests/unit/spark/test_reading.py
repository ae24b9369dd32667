"""Reads of the log and the state: over HTTP, by the tables, and from the archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.twin import Twin
from tests.unit.spark import feeds
from tests.unit.spark.feeds import http, read, rows_of, tables
from tidings.client.poster import Poster
from tidings.spark import latest, register
from tidings.spark.options import Gone, WrongOption
from tidings.sync.feed import on_endpoint

WAYS = [http, tables]


def of_feed(twin: Twin, feed: str) -> list[tuple[str, str]]:
    """Return the log as the core reads it: the id and the line of each operation."""
    pages = on_endpoint(feed, twin.dynamodb_url).stores.log.read(feed, 0)
    return [
        (f"{page.id_prefix}{n:06x}", line) for page in pages for n, line in enumerate(page.lines)
    ]


def folded(lines: list[str]) -> dict[tuple[str, str], Any]:
    """Return the latest operation of each living object, without its event."""
    last = {}
    for line in lines:
        operation = json.loads(line)
        last[operation["type"], operation["id"]] = operation
    return {key: _without_event(each) for key, each in last.items() if each["event"] != "delete"}


def _without_event(operation: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in operation.items() if name != "event"}


def by_place(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["cursor"], row["line"]) for row in sorted(rows, key=lambda row: row["cursor"][8:])]


@pytest.mark.parametrize("way", WAYS)
def test_the_log_is_read_whole_and_in_pieces(way: Any, twin: Twin, feed: str) -> None:
    """With any number of tasks each operation comes once, with its cursor and its line."""
    feeds.fill(twin, feed, 7)
    feeds.projected(twin, feed)

    for tasks in ("1", "3", "20"):
        assert by_place(rows_of(way(twin, feed), partitions=tasks)) == of_feed(twin, feed)


def test_a_new_session_is_given_the_source_once_more(
    spark: SparkSession, twin: Twin, feed: str
) -> None:
    """The new session does not have it from the first one, and does not refuse it either."""
    feeds.fill(twin, feed, 1)
    another = spark.newSession()
    register(another)
    register(another)
    assert another.read.format("tidings").options(**http(twin, feed)).load().count() > 0


@pytest.mark.parametrize("way", WAYS)
def test_the_log_is_read_from_a_cursor_up_to_another(way: Any, twin: Twin, feed: str) -> None:
    """It starts after the first and includes the second, also within a page; equal cursors give
    nothing.
    """
    ids = feeds.fill(twin, feed, 4)
    feeds.projected(twin, feed)
    options = way(twin, feed)

    part = rows_of(options, since=ids[6], until=ids[13], columns="cursor")

    assert sorted(row["cursor"] for row in part) == ids[7:14]
    assert rows_of(options, since=ids[-1]) == rows_of(options, until=ids[3], since=ids[3]) == []


@pytest.mark.parametrize("way", WAYS)
def test_the_state_equals_the_fold_of_the_log(way: Any, twin: Twin, feed: str) -> None:
    """Every living object is an insert, with the fields of its latest operation."""
    feeds.fill(twin, feed, 6)
    feeds.projected(twin, feed)

    rows = rows_of(way(twin, feed), what="state")

    found = {(row["type"], row["id"]): _without_event(json.loads(row["line"])) for row in rows}
    assert found == folded([line for _, line in of_feed(twin, feed)])
    assert {row["event"] for row in rows} == {"insert"}
    assert len(rows) == len(found)


@pytest.mark.parametrize("way", WAYS)
def test_filters_are_applied_where_it_is_read(way: Any, twin: Twin, feed: str) -> None:
    """In the log and in the state, by types and by parents."""
    feeds.fill(twin, feed, 6)
    feeds.projected(twin, feed)
    options = way(twin, feed) | {"types": "video", "parents": "user/1,user/7"}

    def wanted(row: dict[str, Any]) -> bool:
        return row["type"] == "video" and "user/1" in row["parents"]

    for what in ("log", "state"):
        everything = rows_of(way(twin, feed), what=what)
        assert [row["line"] for row in rows_of(options, what=what)] == [
            row["line"] for row in everything if wanted(row)
        ]


def test_an_address_of_the_object_is_no_part_of_its_operation(twin: Twin, feed: str) -> None:
    """A `ref` is only added for consumers; a read returns the line of the log, whatever it has."""
    data = {"ref": "mine", "text": ',"ref":"x"}'}
    feeds.set_object_url(on_endpoint(feed, twin.dynamodb_url), "http://api/{{type}}/{{id}}")
    with Poster(twin.url, feed) as poster:
        poster.post([feeds.operation(1, data=data), feeds.operation(2, data=None)])
    feeds.projected(twin, feed)

    assert by_place(rows_of(http(twin, feed))) == of_feed(twin, feed)


def test_the_archive_is_read_alone(twin: Twin, feed: str, tmp_path: Path) -> None:
    """All its operations are read, one part per task, and by cursors; it has no state."""
    ids = feeds.fill(twin, feed, 7)
    options = {"archive": feeds.archived(twin, feed, tmp_path, pages=3), "feed": feed}

    assert by_place(rows_of(options)) == of_feed(twin, feed)
    assert sorted(row["cursor"] for row in rows_of(options, since=ids[12])) == ids[13:]
    with pytest.raises(WrongOption, match="state is not in the archive"):
        rows_of(options, what="state")


def test_below_the_floor_the_archive_is_read(twin: Twin, feed: str, tmp_path: Path) -> None:
    """One read returns the trimmed pages and those of the log; without an archive it fails."""
    ids = feeds.fill(twin, feed, 4)
    archive = feeds.archived(twin, feed, tmp_path, pages=3)
    feeds.trim(twin, feed, 3)
    options = tables(twin, feed)

    whole = rows_of(options, archive=archive)
    again = rows_of(options, archive=archive, since=ids[2])

    assert sorted(row["cursor"] for row in whole) == ids
    assert sorted(row["cursor"] for row in again) == ids[3:]
    assert sorted(row["cursor"] for row in rows_of(options)) == ids[15:]
    with pytest.raises(Gone, match=f"does not continue after {ids[2]}; it begins with page 4"):
        rows_of(options, since=ids[2])


def test_an_address_without_an_archive_is_no_empty_feed(
    twin: Twin, feed: str, tmp_path: Path
) -> None:
    """The error has the address, with and without tables; the folder `archive` works like its
    parent."""
    ids = feeds.fill(twin, feed, 4)
    archive = feeds.archived(twin, feed, tmp_path / "kept", pages=3)
    feeds.trim(twin, feed, 3)
    for wrong in (f"file://{tmp_path}/none", f"file://{tmp_path}/kept/archive/{feed}"):
        for way in ({"feed": feed}, tables(twin, feed)):
            with pytest.raises(WrongOption, match=f"'{wrong}': holds no part of the feed {feed}"):
                rows_of(way, archive=wrong)
    with pytest.raises(WrongOption, match="holds no part of the feed another"):
        rows_of({"feed": "another", "archive": archive})
    for right in (archive, f"{archive}/archive", f"{archive}/archive/"):
        assert len(rows_of({"feed": feed}, archive=right)) == len(ids)
        assert len(rows_of(tables(twin, feed), archive=right)) == len(ids)


def test_T21_what_was_compacted_is_read_on_purpose(twin: Twin, feed: str, tmp_path: Path) -> None:
    """A cursor at a removed operation works too; without the option the read is refused."""
    ids = feeds.fill(twin, feed, 3)
    archive = feeds.compacted(twin, feed, tmp_path, keeping={(1, 4), (2, 1), (3, 0)})
    options = {"archive": archive, "feed": feed}

    rows = rows_of(options, compacted="take", since=ids[2])

    assert [row["cursor"] for row in rows] == [ids[4], ids[6], ids[10]]
    with pytest.raises(Gone, match=r"page \d was compacted; the option compacted=take"):
        rows_of(options)


def test_what_lies_behind_the_end_is_refused(twin: Twin, feed: str) -> None:
    """This is a bound that the feed has not reached, a bound of another feed, or an invalid id."""
    feeds.fill(twin, feed, 1)
    options = tables(twin, feed)

    with pytest.raises(WrongOption, match="option until: must not be after the end of the feed"):
        rows_of(options, until=f"{1:08x}{9:010x}000000")
    with pytest.raises(Gone, match="does not continue after 000000010000000001"):
        rows_of(options, since=f"{1:08x}{1:010x}000000")
    with pytest.raises(WrongOption, match="option since: must be the id of an event"):
        rows_of(options, since="yesterday")


def test_a_state_of_earlier_is_refused_and_made_of_the_log(
    spark: SparkSession, twin: Twin, feed: str
) -> None:
    """The log up to a cursor, folded, is the state as of that cursor."""
    ids = feeds.fill(twin, feed, 4)
    log = read(spark, tables(twin, feed), until=ids[12])

    found = {(row.type, row.id): row.line for row in latest(log).collect()}

    lines = [line for _, line in of_feed(twin, feed)[:13]]
    living = {key for key, line in found.items() if not line.startswith('{"event":"delete"')}
    assert living == set(folded(lines))
    assert set(found.values()) <= set(lines)
    with pytest.raises(WrongOption, match="read the log up to the cursor and apply"):
        rows_of(tables(twin, feed), what="state", until=ids[12])


def test_spark_reads_with_all_types_and_shows_no_password(
    spark: SparkSession, twin: Twin, feed: str
) -> None:
    """Columns have Spark's own types, and the password is in no plan and no error."""
    feeds.fill(twin, feed, 2)
    secret = "correct horse"
    frame = read(spark, http(twin, feed), password=secret)

    row = frame.where("slot = 1").orderBy("page").first()
    plans = frame._jdf.queryExecution().toString()

    assert row is not None
    assert (row.page, row.type, row.parents, row.tags) == (1, "video", ["user/1"], None)
    assert json.loads(row.data)["n"] == 1
    assert row.timestamp.isoformat() == "2026-01-01T00:00:01.500000"
    assert "horse" not in plans
    with pytest.raises(PySparkException) as failed:
        read(spark, http(twin, feed), password=secret, maxpage="1")
    assert "option maxpage: is unknown" in str(failed.value)
    assert "horse" not in str(failed.value)


def test_a_schema_names_the_columns(spark: SparkSession, twin: Twin, feed: str) -> None:
    """Only the columns of the schema are returned, in its order."""
    feeds.fill(twin, feed, 1)

    reader = spark.read.format("tidings").schema("id string, page bigint")
    frame = reader.options(**tables(twin, feed)).load()

    assert frame.columns == ["id", "page"]
    assert {tuple(row) for row in frame.collect()} == {(f"o{n}", 1) for n in range(5)}
