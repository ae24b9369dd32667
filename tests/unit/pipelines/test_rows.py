"""The rules for rows of the readers of databases: the events and the fields that they publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from tidings.pipelines import (
    Call,
    MongoCollection,
    MySQLTable,
    Pipeline,
    PostgresTable,
    Source,
)
from tidings.pipelines.messages import READER
from tidings.pipelines.mysql import server_of

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
    def do(self, statement: str, values: Sequence[Any] = ()) -> Any:
        raise NotImplementedError

    def create(self) -> Rows:
        columns = ", ".join(f"{each} text" for each in COLUMNS)
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

    def objects(self) -> dict[str, Any]:
        with Objects(self._pipe.url, self._pipe.feed) as objects:
            return {each["id"]: each.get("data") for each in objects.all(self._rows.name)}


@pytest.fixture
def feed(pipe: Pipe, rows: Rows) -> Feed:
    pipe.post("x")
    return Feed(pipe, rows)


def test_events_are_those_of_the_rows(rows: Rows, feed: Feed, pipe: Pipe) -> None:
    """
    A change has the event of the database. A second copy publishes only the rows that differ from
    their object in the feed.
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
