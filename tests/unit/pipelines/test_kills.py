"""Sources that are killed at random moments, of the copy and of the log, while tables change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pymongo import MongoClient

from tests.unit.pipelines import test_mysql_tables, test_postgres_source
from tests.unit.pipelines.followed import Followed
from tidings.pipelines import MongoCollection
from tidings.pipelines.ingest_source import Reader

KILLS = 10
ROWS = 1_500  # three pages of a copy

postgres = test_postgres_source.table
mariadb = test_mysql_tables.table


def killed(followed: Followed, seed: int, change: Callable[[random.Random], None]) -> Followed:
    """
    Kill the reader ten times, each after some batches and changes.

    The last batch before a kill did not reach the feed. A reader changes its database only
    between batches, so this is each moment at which a process can be killed.
    """
    chance = random.Random(seed)
    for _ in range(KILLS):
        followed.start()
        for _ in range(chance.randrange(6)):
            followed.step()
            if chance.random() < 0.4:
                change(chance)
        followed.lose()
        change(chance)
    return followed.start()


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


def changer(do: Callable[..., Any]) -> Callable[[random.Random], None]:
    """Return a function that changes rows, and now and then the table."""
    number = iter(range(10_000_000, 20_000_000))

    def change(chance: random.Random) -> None:
        kinds: Sequence[str] = TABLE_CHANGES if chance.random() < 0.25 else ROW_CHANGES
        text = chance.choice(kinds).replace("{n}", str(next(number)))
        do(*(each.strip() for each in text.split(";")))

    return change


def rows_of(do: Callable[..., Any], columns: str) -> dict[str, Any]:
    names = [name for (name, *_) in do(columns)]
    return {str(row[0]): dict(zip(names, row, strict=True)) for row in do("SELECT * FROM {t}")}


@pytest.mark.parametrize("seed", range(2))
def test_T25_a_table_of_postgresql(postgres: test_postgres_source.Database, seed: int) -> None:
    postgres.do("CREATE TABLE {t} (id bigint PRIMARY KEY, v text)")
    postgres.do(f"INSERT INTO {{t}} SELECT n, 'v' FROM generate_series(1, {ROWS}) n")
    followed = postgres.reader()
    killed(followed, seed, changer(postgres.do)).settle()
    assert followed.objects == rows_of(
        postgres.do,
        "SELECT attname::text FROM pg_attribute WHERE attrelid = '{t}'::regclass AND attnum > 0"
        " ORDER BY attnum",
    )


@pytest.mark.parametrize("seed", range(2))
def test_T25_a_table_of_mariadb(mariadb: test_mysql_tables.Database, seed: int) -> None:
    mariadb.do("CREATE TABLE {t} (id bigint PRIMARY KEY, v text)")
    mariadb.do(f"INSERT INTO {{t}} SELECT seq, 'v' FROM seq_1_to_{ROWS}")
    followed = mariadb.reader()
    killed(followed, seed, changer(mariadb.do)).settle()
    assert followed.objects == rows_of(mariadb.do, "DESCRIBE {t}")


@pytest.fixture
def documents(mongodb_url: str) -> Iterator[Any]:
    with MongoClient[Any](mongodb_url) as client:
        yield client.get_default_database().killed


@pytest.mark.parametrize("seed", range(2))
def test_T25_a_collection(documents: Any, mongodb_url: str, seed: int) -> None:
    documents.drop()
    documents.insert_many([{"_id": n, "v": 0} for n in range(ROWS)])

    def make() -> Reader:
        return MongoCollection(mongodb_url, documents.name)

    def change(chance: random.Random) -> None:
        n = chance.randrange(ROWS)
        match chance.randrange(5):
            case 0:
                documents.insert_one({"_id": f"n{chance.random()}"})
            case 1:
                documents.update_many({"_id": {"$gt": n}}, {"$inc": {"v": 1}})
            case 2:
                documents.delete_one({"_id": n})
            case 3:
                documents.replace_one({"_id": n}, {"w": n})
            case _:
                if chance.random() < 0.3:
                    documents.drop()
                    documents.insert_many([{"_id": n} for n in range(3)])

    followed = killed(Followed(make), seed, change)
    found = {str(each["_id"]): each for each in documents.find()}
    followed.until(lambda: followed.objects == found).close()
