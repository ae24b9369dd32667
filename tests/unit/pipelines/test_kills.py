"""Sources that are killed at random moments, of the copy and of the log, while tables change."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, ReplaceOne

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines import test_mysql_tables, test_postgres_source
from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.followed import Followed
from tests.unit.pipelines.test_running import (
    KILLS,
    TIDINGS,
    objects_of,
    projected,
    repeated,
    started,
)
from tidings.client.feed_api import Objects
from tidings.pipelines import MongoCollection
from tidings.pipelines.ingest_source import COMPLETE, COPY
from tidings.pipelines.messages import READER

FEW_KILLS = 3
KILLS_IN_PROCESS = 10
ROWS_IN_PROCESS = 1_500  # three pages of a copy
ROWS = 8_000  # some seconds of a copy
GIVEN = "max_deletes=100_000"  # the owner of these tables does delete nearly all rows
FILE = """
from tidings.pipelines import *

pipeline = Pipeline("copy", Source("{url}", feed="{feed}"))
pipeline.read("app", {text}).save("lines", Ndjson("{lines}"))
"""

postgres = test_postgres_source.table
mariadb = test_mysql_tables.table

ROW_CHANGES = (
    "INSERT INTO {t} (id) VALUES ({n})",
    "UPDATE {t} SET v = 'changed' WHERE id % 7 = {n} % 7",
    "DELETE FROM {t} WHERE id % 11 = {n} % 11",
    "UPDATE {t} SET id = id + 1000000 WHERE id % 13 = {n} % 13 AND id < 1000000",
)
TABLE_CHANGES = (
    "ALTER TABLE {t} ADD c{n} int DEFAULT {n}",
    "TRUNCATE TABLE {t}",
    "DROP TABLE {t}; CREATE TABLE {t} (id bigint PRIMARY KEY, v text);"
    " INSERT INTO {t} (id) VALUES (1), (2), (3)",
    "CREATE TABLE {t}_{n} (id bigint PRIMARY KEY, v text); INSERT INTO {t}_{n} (id) VALUES (5);"
    " ALTER TABLE {t} RENAME TO {t}_old{n}; ALTER TABLE {t}_{n} RENAME TO {t}",
)


@dataclass
class Subject:
    """A table or collection, and what its owner does to it.

    *text* is the source in the file of a pipeline. *make* creates the table again with a number of
    rows. *change* changes rows, and sometimes the table; *insert* inserts a row.
    """

    text: str
    followed: Followed
    make: Callable[[int], Any]
    change: Callable[[random.Random], Any]
    insert: Callable[[], Any]
    rows: Callable[[], dict[str, Any]]


def of_sql(
    text: str,
    table: test_postgres_source.Database | test_mysql_tables.Database,
    numbers: str,
    columns: str,
) -> Subject:
    """Return a subject for SQL: *numbers* selects 1 to N, and *columns* the names of the table's
    columns.
    """
    n = iter(range(10_000_000, 20_000_000))

    def do(statements: str) -> list[tuple[Any, ...]]:
        return table.do(*(each.strip() for each in statements.split(";")))

    def make(rows: int) -> None:
        do("DROP TABLE IF EXISTS {t}; CREATE TABLE {t} (id bigint PRIMARY KEY, v text)")
        do(f"INSERT INTO {{t}} {numbers.format(rows)}")

    def change(chance: random.Random) -> None:
        kinds = TABLE_CHANGES if chance.random() < 0.25 else ROW_CHANGES
        do(chance.choice(kinds).replace("{n}", str(next(n))))

    def rows() -> dict[str, Any]:
        names = [name for (name, *_) in do(columns)]
        return {str(row[0]): dict(zip(names, row, strict=True)) for row in do("SELECT * FROM {t}")}

    insert = partial(do, "INSERT INTO {t} (id) VALUES (0)")
    return Subject(text, table.reader(max_deletes=100_000), make, change, insert, rows)


def of_postgres(request: pytest.FixtureRequest) -> Iterator[Subject]:
    table = request.getfixturevalue("postgres")
    yield of_sql(
        f"PostgresTable({table.dsn!r}, {table.t!r}, slot={table.t!r}, {GIVEN})",
        table,
        "SELECT n, 'v' FROM generate_series(1, {}) n",
        "SELECT attname::text FROM pg_attribute WHERE attrelid = '{t}'::regclass AND attnum > 0"
        " ORDER BY attnum",
    )


def of_mariadb(request: pytest.FixtureRequest) -> Iterator[Subject]:
    table = request.getfixturevalue("mariadb")
    text = f"MySQLTable({table.url!r}, {table.t!r}, {GIVEN})"
    yield of_sql(text, table, "SELECT seq, 'v' FROM seq_1_to_{}", "DESCRIBE {t}")


def of_mongodb(request: pytest.FixtureRequest) -> Iterator[Subject]:
    url = request.getfixturevalue("mongodb_url")
    with MongoClient[Any](url) as client:
        documents = client.get_default_database()[f"killed{abs(hash(request.node.name))}"]

        def make(rows: int) -> None:
            documents.drop()
            documents.insert_many([{"_id": n, "v": 0} for n in range(1, rows + 1)])

        def change(chance: random.Random) -> None:
            n = chance.randrange(ROWS_IN_PROCESS)
            match chance.randrange(5):
                case 0:
                    documents.insert_one({"_id": f"n{chance.random()}"})
                case 1:
                    # The substitute for MongoDB loses the keys of documents that operators update.
                    some = [ReplaceOne({"_id": each}, {"v": n}) for each in range(n, n + 100)]
                    documents.bulk_write(some)
                case 2:
                    documents.delete_one({"_id": n})
                case 3:
                    documents.replace_one({"_id": n}, {"w": n})
                case _:
                    if chance.random() < 0.3:
                        make(3)

        yield Subject(
            f"MongoCollection({url!r}, {documents.name!r}, {GIVEN})",
            Followed(lambda: MongoCollection(url, documents.name, max_deletes=100_000)),
            make,
            change,
            lambda: documents.insert_one({"_id": "last"}),
            lambda: {str(each["_id"]): each for each in documents.find()},
        )


@pytest.fixture(
    params=[
        needing("postgresql_url", of_postgres),
        needing("mariadb_url", of_mariadb),
        needing("mongodb_url", of_mongodb),
    ]
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    yield from request.param(request)


@pytest.mark.parametrize("seed", range(2))
def test_T25_a_reader_is_killed_between_any_two_batches(subject: Subject, seed: int) -> None:
    """The last batch before a kill did not reach the feed."""
    subject.make(ROWS_IN_PROCESS)
    chance, followed = random.Random(seed), subject.followed
    for _ in range(KILLS_IN_PROCESS):
        followed.start()
        for _ in range(chance.randrange(6)):
            followed.step()
            if chance.random() < 0.4:
                subject.change(chance)
        followed.lose()
        subject.change(chance)
    rows = subject.rows()
    followed.start().until(lambda: followed.objects == rows).settle()
    assert followed.objects == rows
    followed.close()


@pytest.mark.timeout(60 * (KILLS + 10))
def test_T25_a_process_is_killed_at_any_moment(
    pipe: Pipe, subject: Subject, tmp_path: Path
) -> None:
    """SIGKILL during copies and the log, in turn, while rows and tables change."""
    file, chance = tmp_path / "pipeline.py", random.Random(7)
    where = {"url": pipe.url, "feed": pipe.feed, "lines": tmp_path / "lines"}
    file.write_text(FILE.format(**where, text=subject.text))
    command = [*TIDINGS, "pipeline", "run", str(file), "--json", "--worker", "w"]
    for kill in range(KILLS or FEW_KILLS):
        mode = COMPLETE if kill % 2 else COPY
        if mode == COPY:
            subject.make(ROWS)
        before = position(pipe)
        with started(command, subprocess.DEVNULL) as process:
            until(partial(reads, pipe, mode, before), within_s=90)
            with repeated(partial(subject.change, chance), every_s=0.1):
                time.sleep(chance.random())
                assert process.poll() is None
                process.kill()
        subject.change(chance)
    with started(command, subprocess.DEVNULL) as process:
        subject.insert()  # this process alone can have read it
        with suppress(AssertionError):  # the next line shows what differs
            until(lambda: process.poll() is not None or held(pipe) == subject.rows(), within_s=90)
        assert (process.poll(), held(pipe)) == (None, subject.rows())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    until(lambda: projected(pipe), within_s=60)
    assert held(pipe) == subject.rows()


def position(pipe: Pipe) -> dict[str, Any]:
    """Return the position of the reader, as the feed has it."""
    with Objects(pipe.url, pipe.feed) as objects:
        found = objects.one(READER, "copy.app")
    return dict(*found["data"].values()) if found else {}


def reads(pipe: Pipe, mode: str, before: dict[str, Any]) -> bool:
    """Return True if the reader is in *mode* and its position differs from *before*."""
    found = position(pipe)
    return found != before and found["mode"] == mode


def held(pipe: Pipe) -> dict[str, Any]:
    found = objects_of(pipe)
    return {name: each["data"] for name, each in found.items() if each["type"] != READER}
