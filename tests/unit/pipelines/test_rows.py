"""The rules for rows of the readers of databases: the events and the fields that they publish."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from pymongo import MongoClient

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.test_running import Running
from tidings.client import Poster
from tidings.client.feed_api import Objects
from tidings.client.poster import encode
from tidings.pipelines import (
    Call,
    Files,
    MongoCollection,
    MySQLTable,
    Pipeline,
    PostgresTable,
    Source,
)
from tidings.pipelines.documents import Keyed
from tidings.pipelines.messages import READER, WrongPipeline
from tidings.pipelines.mysql import server_of
from tidings.pipelines.row_rules import is_secret, refusal_of

COLUMNS = ("v", "big")
WITHIN_S = 60


class Rows:
    """A table or collection with a key, and its reader in a pipeline."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name

    def create(self) -> Rows:
        raise NotImplementedError

    def put(self, id: int, **fields: Any) -> None:
        """Insert the row *id*, or update it if it exists."""
        raise NotImplementedError

    def delete(self, id: int) -> None:
        raise NotImplementedError

    def add_column(self, name: str) -> None:
        raise NotImplementedError

    def reader(self, **options: Any) -> Any:
        raise NotImplementedError


class Sql(Rows):
    long = "text"

    def do(self, statement: str, values: Sequence[Any] = ()) -> Any:
        raise NotImplementedError

    def create(self) -> Rows:
        columns = ", ".join(f"{each} {self.long}" for each in COLUMNS)
        self.do(f"CREATE TABLE {self.name} (id int PRIMARY KEY, {columns})")
        return self

    def put(self, id: int, **fields: Any) -> None:
        found = self.do(f"SELECT id FROM {self.name} WHERE id = {id}")
        if found:
            pairs = ", ".join(f"{each} = %s" for each in fields)
            self.do(f"UPDATE {self.name} SET {pairs} WHERE id = {id}", list(fields.values()))
        else:
            names, marks = ", ".join(["id", *fields]), ", ".join(["%s"] * (len(fields) + 1))
            self.do(f"INSERT INTO {self.name} ({names}) VALUES ({marks})", [id, *fields.values()])

    def delete(self, id: int) -> None:
        self.do(f"DELETE FROM {self.name} WHERE id = {id}")

    def add_column(self, name: str) -> None:
        self.do(f"ALTER TABLE {self.name} ADD COLUMN {name} text")


class OfPostgres(Sql):
    def do(self, statement: str, values: Sequence[Any] = ()) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def reader(self, **options: Any) -> PostgresTable:
        return PostgresTable(self.url, self.name, **{"slot": self.name, **options})


class OfMySQL(Sql):
    long = "mediumtext"

    def do(self, statement: str, values: Sequence[Any] = ()) -> Any:
        with pymysql.connect(**server_of(self.url)[0]) as connection:
            cursor = connection.cursor()
            cursor.execute(statement, values)
            return cursor.fetchall()

    def reader(self, **options: Any) -> MySQLTable:
        return MySQLTable(self.url, self.name, **options)


class OfMongo(Rows):
    def create(self) -> Rows:
        self.documents = MongoClient[Any](self.url).get_default_database()[self.name]
        return self

    def put(self, id: int, **fields: Any) -> None:
        changed = self.documents.update_one({"_id": id}, {"$set": fields})
        if not changed.matched_count:
            self.documents.insert_one({"_id": id, **fields})

    def delete(self, id: int) -> None:
        self.documents.delete_one({"_id": id})

    def add_column(self, name: str) -> None:
        return  # a document has any field

    def reader(self, **options: Any) -> MongoCollection:
        return MongoCollection(self.url, self.name, **options)


KINDS: dict[str, type[Rows]] = {
    "database": OfPostgres,
    "mariadb_url": OfMySQL,
    "mongodb_url": OfMongo,
}


@pytest.fixture(params=KINDS)
def rows(request: pytest.FixtureRequest) -> Iterator[Rows]:
    name = f"r{abs(hash(request.node.name)) % 10**12}"
    made = KINDS[request.param](request.getfixturevalue(request.param), name).create()
    yield made
    if isinstance(made, OfPostgres):
        made.do("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


class Feed:
    """The feed *pipe*, to which the pipeline *p* reads *rows*."""

    def __init__(self, pipe: Pipe, rows: Rows) -> None:
        self._pipe, self._rows = pipe, rows

    def run(self, **options: Any) -> Running:
        pipeline = Pipeline("p", Source(self._pipe.url, feed=self._pipe.feed))
        reader = self._rows.reader(**options)
        return Running(pipeline.read("r", reader).save("s", Call(lambda batch: None)), attempts=1)

    def events(self) -> list[tuple[str, str]]:
        """Return the events and ids of the rows' type in the log."""
        first = self._pipe.api.log()["oldest"]
        entries = self._pipe.api.log({"from": first, "limit": "1000"})["entries"]
        ours = [each for each in entries if each["data"].get("type") == self._rows.name]
        return [(each["event"], each["data"]["id"]) for each in ours]

    def until(self, *events: tuple[str, str]) -> None:
        """Wait for these events, in any order."""
        until(lambda: len(self.events()) >= len(events), within_s=WITHIN_S)
        assert sorted(self.events()) == sorted(events)

    def state(self) -> dict[str, Any]:
        with Objects(self._pipe.url, self._pipe.feed) as objects:
            found = objects.one(READER, "p.r")
        return dict(found["data"][self._rows.name]) if found else {}

    def objects(self) -> dict[str, Any]:
        with Objects(self._pipe.url, self._pipe.feed) as objects:
            return {each["id"]: each.get("data") for each in objects.all(self._rows.name)}


@pytest.fixture
def feed(pipe: Pipe, rows: Rows) -> Feed:
    pipe.post("x")
    return Feed(pipe, rows)


def test_events_are_those_of_the_rows(rows: Rows, feed: Feed, pipe: Pipe) -> None:
    """A change has the event of the database. A second copy publishes only the rows that differ
    from their object in the feed.
    """
    for each in range(1, 4):
        rows.put(each, v="a")
    seen = [("insert", "1"), ("insert", "2"), ("insert", "3")]
    with feed.run():
        feed.until(*seen)
        rows.put(2, v="b")
        feed.until(*seen, ("update", "2"))
        rows.put(4, v="a")
        rows.delete(3)
        seen += [("update", "2"), ("insert", "4"), ("delete", "3")]
        feed.until(*seen)
    rows.put(2, v="c")
    rows.put(5, v="a")
    rows.delete(4)
    state = {"mode": "copy", "again": True, "slot": rows.name}
    with Poster(pipe.url, pipe.feed) as poster:
        again = {"event": "update", "type": READER, "id": "p.r", "data": {rows.name: state}}
        theirs = {"event": "insert", "type": rows.name, "id": "6", "data": {"theirs": True}}
        poster.post([again, theirs])
    rows.put(6, v="a")
    seen += [("insert", "6"), ("update", "2"), ("insert", "5"), ("update", "6"), ("delete", "4")]
    with feed.run():
        feed.until(*seen)
        rows.put(1, v="last")
        feed.until(*seen, ("update", "1"))


def key_of(rows: Rows) -> str:
    return "_id" if isinstance(rows, OfMongo) else "id"


def test_a_report_replaces_a_row_that_is_too_large(rows: Rows, feed: Feed) -> None:
    """It has the key and the reason, until the row is small enough."""
    rows.put(1, v="a", big="b")
    whole = {key_of(rows): 1, "v": "a", "big": "b"}
    with feed.run(too_large="report"):
        until(lambda: feed.objects().get("1") == whole, within_s=WITHIN_S)
        rows.put(1, big="\u00e9" * 35_000)
        until(lambda: feed.objects()["1"] != whole, within_s=WITHIN_S)
        report = feed.objects()["1"]
        assert report.keys() == {key_of(rows), "too_large"} and report[key_of(rows)] == 1
        rows.put(1, big="b")
        until(lambda: feed.objects()["1"] == whole, within_s=WITHIN_S)


def test_a_row_that_is_too_large_stops_the_reader(
    rows: Rows, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """The error has the table, key and column, and the check counts such rows. The row can be
    skipped, or its column left out.
    """
    rows.put(1, v="a")
    rows.put(2, v="a", big="z" * 70_000)
    with feed.run() as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=WITHIN_S)
        error = running.runner.progress[0].error
    for text in (rows.name, "row 2: one operation holds at most 65536", "largest field is big"):
        assert text in error
    assert feed.objects() == {}
    assert "too large for the feed: 1, the first is 2" in str(problems_of(rows))
    assert problems_of(rows, too_large="skip") == []
    with feed.run(too_large="skip"):
        until(lambda: feed.objects().keys() == {"1"}, within_s=WITHIN_S)
        rows.put(3, v="a")
        until(lambda: feed.objects().keys() == {"1", "3"}, within_s=WITHIN_S)
    assert "row 2: " in caplog.text and "it was skipped" in caplog.text
    with feed.run(exclude="big"):  # another choice of columns is copied again
        until(lambda: "2" in feed.objects(), within_s=WITHIN_S)
        rows.put(3, v="b", big="z" * 70_000)
        until(lambda: feed.objects()["3"]["v"] == "b", within_s=WITHIN_S)
    assert not any("big" in each for each in feed.objects().values())


def problems_of(rows: Rows, **options: Any) -> list[str]:
    """Return the problems that the check finds."""
    reader = rows.reader(**options)
    try:
        if isinstance(rows, OfMongo):  # the substitute of a server has not all commands of a check
            return list(reader._problems_of_documents("p.r", rows.documents))
        return list(reader.check("p.r")[0])
    except WrongPipeline as error:
        return [str(error)]


def test_columns_named_like_secrets(
    rows: Rows, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """A new reader refuses them until the columns are named or excluded. A column that is added
    later is withheld, with a warning, until it is named.
    """
    rows.add_column("password_hash")
    rows.put(1, v="a", password_hash="x")
    with feed.run() as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=WITHIN_S)
        assert "password_hash are named like secrets" in running.runner.progress[0].error
    assert feed.objects() == {}
    assert "password_hash are named like secrets" in str(problems_of(rows))
    with feed.run(exclude="password_hash"):
        until(lambda: "1" in feed.objects(), within_s=WITHIN_S)
        assert "x" not in feed.objects()["1"].values()
        rows.add_column("token")
        rows.put(2, v="b", token="y")
        until(lambda: "2" in feed.objects(), within_s=WITHIN_S)
        assert "y" not in feed.objects()["2"].values()
        assert "the column token is withheld" in caplog.text
    with feed.run(columns=["v", "token"]):
        until(lambda: feed.objects()["2"].get("token") == "y", within_s=WITHIN_S)
        assert set(feed.objects()["2"]) == {key_of(rows), "v", "token"}


def test_a_reader_of_an_earlier_release_publishes_secrets_and_warns(
    rows: Rows, feed: Feed, pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    """Its state does not have the fields, or it has the columns that it has published."""
    rows.add_column("password")
    rows.put(1, v="a", password="x")
    with feed.run(columns=["v", "big", "password"]):
        until(lambda: "1" in feed.objects(), within_s=WITHIN_S)
        until(lambda: feed.state().get("mode") == "complete", within_s=WITHIN_S)
    state = {name: each for name, each in feed.state().items() if name != "fields"}
    with Poster(pipe.url, pipe.feed) as poster:
        made = {"event": "update", "type": READER, "id": "p.r", "data": {rows.name: state}}
        poster.post([made])
    with feed.run():
        rows.put(2, v="b", password="y")
        until(lambda: "2" in feed.objects(), within_s=WITHIN_S)
    assert feed.objects()["2"]["password"] == "y"
    assert "the column password is published" in caplog.text


@pytest.mark.parametrize(
    ("name", "so"),
    [
        *((each, True) for each in ("password", "PASSWD", "passwordHash", "api-key", "Token")),
        *((each, False) for each in ("password_changed_at", "tokens", "secretary", "key", "")),
    ],
)
def test_names_of_secrets_are_exact(name: str, so: bool) -> None:
    assert is_secret(name) == so


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"columns": "a", "exclude": "b"}, "not both"),
        ({"too_large": "drop"}, "too_large must be 'stop', 'skip' or 'report'"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(WrongPipeline, match=rule):
        Keyed("videos", "id", **options)


@pytest.mark.parametrize(("id", "rule"), [("", "must not be empty"), ("a\0", "U+0000")])
def test_a_row_whose_id_a_feed_refuses(id: str, rule: str) -> None:
    """The error names the table; such a row can be skipped, as one that is too large."""
    operation = Keyed("videos", "id").put({"id": id}, {"id": id})
    reason = refusal_of(operation, encode(operation))
    assert rule in reason
    with pytest.raises(WrongPipeline, match=f"videos, row {id}: id: must not"):
        Keyed("videos", "id").refit(operation, reason)
    assert Keyed("videos", "id", too_large="skip").refit(operation, reason) is None


def test_columns_that_do_not_exist() -> None:
    """Each wrong name is a problem, and the key cannot be excluded."""
    keyed = Keyed("videos", "id", exclude=("id", "x"))
    missing, key = keyed.choose(["id", "v"], None)
    assert "no column 'x'" in missing and "key column id cannot be excluded" in key


def test_files_with_lines_that_are_too_large(tmp_path: Path, pipe: Pipe) -> None:
    """The rule is that of tables."""
    pipe.post("x")
    lines = [{"id": "1", "a": "z" * 70_000}, {"id": "2", "a": nested(40)}, {"id": "3", "a": 1}]
    (tmp_path / "in").write_text("".join(json.dumps(each) + "\n" for each in lines))
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.read("r", Files(tmp_path / "in", type="line", too_large="report"))
    with Running(pipeline.save("s", Call(lambda batch: None))) as running:
        running.thread.join(60)
    with Objects(pipe.url, pipe.feed) as objects:
        found = {each["id"]: each["data"] for each in objects.all("line")}
    assert found["1"].keys() == {"id", "too_large"} and "nested" in found["2"]["too_large"]
    assert found["3"] == lines[2]


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1
