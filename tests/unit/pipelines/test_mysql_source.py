"""A table of MariaDB as a source, a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.compat.oplog.wire import until
from tests.unit.pipelines.followed import known
from tests.unit.pipelines.test_broker_sources import opened, take_operations
from tidings.pipelines import MySQLTable, mysql
from tidings.pipelines.ingest_source import BATCH, Batch
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.mysql import server_of


class Database:
    def __init__(self, url: str, table: str) -> None:
        self.url, self.table, self.readers = url, table, list[MySQLTable]()
        self.connection = pymysql.connect(**server_of(url)[0])

    def do(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements, several of them in one transaction; return the result of the last
        one."""
        with self.connection.cursor() as cursor:
            if len(statements) > 1:
                self.connection.begin()
            for statement in statements:
                cursor.execute(statement.format(t=self.table))
            self.connection.commit()
            return list(cursor.fetchall())

    def reader(self, **options: Any) -> MySQLTable:
        self.readers.append(MySQLTable(self.url, self.table, **{"type": "video", **options}))
        return self.readers[-1]


@pytest.fixture
def database(mariadb_url: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(mariadb_url, f"t{abs(hash(request.node.name))}")
    made.do("CREATE TABLE {t} (id bigint PRIMARY KEY, title varchar(50)) CHARACTER SET utf8mb4")
    yield made
    for reader in made.readers:
        reader.close()
    made.connection.close()


def ids(operations: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["event"], each["id"]) for each in operations]


def followed(database: Database, state: Any = (), **options: Any) -> Iterator[Batch]:
    """Return the batches after the copy of an empty table."""
    batches = opened(database.reader(**options), state)
    assert next(batches).operations == []
    return batches


def test_a_table_is_copied_then_followed(database: Database) -> None:
    """A copied row and one from the log have the same form."""
    database.do(
        "ALTER TABLE {t} ADD (seen timestamp NULL, made datetime(3), price decimal(6,2), ok bool,"
        " kind enum('a', 'b'), raw varbinary(10), more json, length time, big bigint unsigned)"
    )
    row = "FROM_UNIXTIME(1), '2026-01-02 03:04:05.678', 1.5, 1, 'b', x'00ff', '[1]', '01:00:00'"
    big = str((1 << 64) - 1)
    database.do(f"INSERT INTO {{t}} VALUES (1, 'one', {row}, {big}), (2, '\U0001f600', {row}, 0)")
    batches = opened(database.reader())
    copied, state = take_operations(batches, 2)
    database.do(f"INSERT INTO {{t}} VALUES (3, 'one', {row}, {big})")
    told, _ = take_operations(batches, 1)
    assert told[0] == {**copied[0], "id": "3", "data": {**copied[0]["data"], "id": 3}}
    assert copied[0]["data"] == {
        "id": 1,
        "title": "one",
        "seen": "1970-01-01T00:00:01",
        "made": "2026-01-02T03:04:05.678000",
        "price": "1.50",
        "ok": 1,
        "kind": "b",
        "raw": "AP8=",
        "more": "[1]",
        "length": 3600.0,
        "big": (1 << 64) - 1,
    }
    assert state["video"]["at"] == [2]

    again = opened(database.reader(), state)  # killed before it was complete
    assert ids(take_operations(again, 1)[0]) == [("insert", "3")]
    assert next(again).state["video"]["mode"] == "complete"


def test_rows_that_change_go_and_get_other_keys(database: Database) -> None:
    """Several changes of a row at once become its final value."""
    batches = followed(database)
    database.do("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert len(take_operations(batches, 3)[0]) == 3
    database.do(
        "UPDATE {t} SET title = 'x' WHERE id = 1",
        "UPDATE {t} SET title = 'y' WHERE id = 1",
        "UPDATE {t} SET id = 20 WHERE id = 2",
        "DELETE FROM {t} WHERE id = 3",
        "INSERT INTO {t} VALUES (4, 'd')",
        "DELETE FROM {t} WHERE id = 4",
    )
    found, state = take_operations(batches, 5)
    assert {name: event for event, name in ids(found)} == {
        "1": "update",
        "2": "delete",
        "20": "insert",
        "3": "delete",
        "4": "delete",
    }
    assert found[0]["data"] == {"id": 1, "title": "y"}
    database.do("INSERT INTO {t} VALUES (5, 'e')")
    rest = opened(database.reader(), state)
    assert ids(take_operations(rest, 1)[0]) == [("insert", "5")]


def test_a_large_transaction_comes_in_batches(database: Database) -> None:
    """The reader's position stays before it until it is complete."""
    batches = followed(database)
    rows = ", ".join(f"({number}, 'x')" for number in range(3 * BATCH))
    database.do(f"INSERT INTO {{t}} VALUES {rows}")
    found, state = list[dict[str, Any]](), dict[str, Any]()
    while len(found) < 3 * BATCH:
        batch = next(batches)
        assert len(batch.operations) <= BATCH
        found += batch.operations
        state = state or dict(batch.state)
    assert {each["id"] for each in found} == {str(number) for number in range(3 * BATCH)}
    again = opened(database.reader(), state)
    assert len(take_operations(again, 3 * BATCH)[0]) == 3 * BATCH


def test_a_log_of_other_tables_holds_up_no_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any traffic on other tables the reader returns at intervals, without a heartbeat in
    between.
    """
    monkeypatch.setattr(mysql, "LOOK_S", 0)
    database.do("CREATE TABLE other{t} (id int PRIMARY KEY)")
    reader = database.reader()
    reader.open("p.app", {}, known)
    batches = reader.read()
    assert next(batches).state["video"]["mode"] == "complete"
    for number in range(3):
        database.do(f"INSERT INTO other{{t}} VALUES ({number})")
        assert next(batches) == Batch()


def test_keys_of_several_columns(database: Database) -> None:
    """The columns are text and bytes; rows are copied in the order of the key, page by page."""
    database.do("DROP TABLE {t}")
    database.do(
        "CREATE TABLE {t} (a varchar(9), b binary(2), c varbinary(9), n int, PRIMARY KEY (a, b, c))"
    )
    keys = [(a, b, c) for a in "\u00e4bc" for b in range(10) for c in range(21)]
    rows = [f"('{a}', x'{b:02}00', x'{c:02}', 0)" for a, b, c in keys]
    database.do(f"INSERT INTO {{t}} VALUES {', '.join(rows)}")
    batches = opened(database.reader(key=("a", "b", "c")))
    copied, left = take_operations(batches, 1)
    rest, _ = take_operations(opened(database.reader(key=("a", "b", "c")), left), 130)
    assert len({each["id"] for each in copied + rest}) == len(copied) + len(rest) == 630
    while next(batches).state["video"]["mode"] == "copy":
        pass
    database.do(
        "DELETE FROM {t} WHERE a = '\u00e4' AND b = x'0300'",
        "UPDATE {t} SET n = 1 WHERE b = x'0400'",
    )
    found, _ = take_operations(batches, 21 + 63)
    assert {each["event"] for each in found[:21]} == {"delete"}
    assert {each["event"] for each in found[21:]} == {"update"}
    assert {each["id"] for each in found} <= {each["id"] for each in copied + rest}


def test_a_row_that_is_locked_is_waited_for(database: Database) -> None:
    """The log has a transaction before others see it: the values from before it must not be
    read."""
    database.do("INSERT INTO {t} VALUES (1, 'old')")
    batches, found = opened(database.reader()), list[dict[str, Any]]()
    with pymysql.connect(**server_of(database.url)[0]) as other:
        other.begin()
        other.cursor().execute(f"UPDATE {database.table} SET title = 'new'")
        copied = threading.Thread(target=lambda: found.extend(take_operations(batches, 1)[0]))
        copied.start()
        until(lambda: database.do("SHOW STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1] != "0")
        other.commit()
    copied.join()
    assert found[0]["data"]["title"] == "new"


def test_a_log_that_is_gone_is_begun_anew(database: Database) -> None:
    """It starts with a copy; so does the log of another server. The position says when an old file
    is no longer needed.
    """
    batches = followed(database)
    database.do("INSERT INTO {t} VALUES (1, 'a')")
    _, old = take_operations(batches, 1)
    database.do("FLUSH BINARY LOGS")
    states = (each.state for each in batches)
    new = next(each for each in states if each["video"]["file"] > old["video"]["file"])
    until(lambda: purged(database, new["video"]["file"]))
    for left in (old, {"video": {**new["video"], "server": 8}}):
        again = next(opened(database.reader(), left))
        assert (again.state["video"]["mode"], ids(again.operations)) == ("copy", [("insert", "1")])


def purged(database: Database, file: str) -> bool:
    """Return True once *file* is the oldest log: a log in use stays, and a reader's end is noticed
    later.
    """
    database.do(f"PURGE BINARY LOGS TO '{file}'")
    return bool(database.do("SHOW BINARY LOGS")[0][0] == file)


def test_what_a_table_of_mysql_needs(database: Database) -> None:
    """It needs valid names, and a log with column names; without them a table can only be
    copied."""
    for table, key in (("a b", "id"), ("a", "b`"), ("", "id")):
        with pytest.raises(WrongPipeline, match="must be a table or column name"):
            MySQLTable(database.url, table, key=key)
    assert str(MySQLTable("mysql://me:secret@host/db", "videos")) == "table videos at host/db"
    database.do("INSERT INTO {t} VALUES (1, 'a')")
    database.do("SET GLOBAL binlog_row_metadata = NO_LOG")
    try:
        with pytest.raises(WrongPipeline, match="must run with binlog_row_metadata=FULL, not NO"):
            database.reader().open("p.app", {}, known)
        reader = database.reader(follow=False)
        assert [ids(each.operations) for each in opened(reader)] == [[("insert", "1")], []]
    finally:
        database.do("SET GLOBAL binlog_row_metadata = FULL")
