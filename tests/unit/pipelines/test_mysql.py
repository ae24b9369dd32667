"""MariaDB as a store, a real one."""

from __future__ import annotations

import pymysql
import pytest

from tests.unit.pipelines.real_stores import rows_of
from tidings.client.errors import Unwritten
from tidings.pipelines import Message, MySQL
from tidings.pipelines.messages import Overtaken, WrongPipeline

RESET = Message("command", "", "", {}, "1")


def message(op: str, name: str, data: object = None) -> Message:
    return Message(op, "video", "", {"type": "video", "id": name, "data": data}, "0" * 24)


def opened(url: str, table: str) -> MySQL:
    sink = MySQL(url, table)
    sink.open("p.rows")
    return sink


def test_objects_become_rows(mariadb_url: str) -> None:
    """The batch inserts, updates and deletes, also an unknown object; a repeat of it changes
    nothing."""
    sink = opened(mariadb_url, "made")
    batch = [message("insert", "a", 1), message("insert", "b", 1)]
    batch += [message("update", "a", "\u00e4\U0001f600"), message("delete", "b")]
    batch += [message("leave", "never")]
    for _ in range(2):
        sink.write(batch, 1)
        assert rows_of(mariadb_url, "made") == {"a": message("", "a", "\u00e4\U0001f600").data}
    sink.close()


def test_objects_whose_names_look_alike_are_two(mariadb_url: str) -> None:
    """Some of them are equal in a collation."""
    sink = opened(mariadb_url, "alike")
    names = ["a", "A", "a ", "\u00e4", "a\u0308"]
    sink.write([message("insert", name, name) for name in names], 1)
    sink.close()
    assert set(rows_of(mariadb_url, "alike")) == set(names)


def test_before_a_copy_the_rows_go(mariadb_url: str) -> None:
    """They are deleted at their place in the batch."""
    sink = opened(mariadb_url, "emptied")
    sink.write([RESET, message("insert", "old")], 1)
    sink.write([message("insert", "older"), RESET, message("insert", "new")], 1)
    sink.close()
    assert set(rows_of(mariadb_url, "emptied")) == {"new"}


def test_a_worker_of_mysql_that_was_overtaken_writes_nothing(mariadb_url: str) -> None:
    """This holds however late its transaction is."""
    old, new = opened(mariadb_url, "overtaken"), opened(mariadb_url, "overtaken")
    old.write([message("insert", "a")], 9)
    new.write([message("delete", "a")], 10)
    with pytest.raises(Overtaken, match="worker 10 writes overtaken; it has replaced worker 9"):
        old.write([message("insert", "a")], 9)
    assert rows_of(mariadb_url, "overtaken") == {}
    for sink in (old, new):
        sink.close()


def test_a_batch_is_in_the_rows_or_not(mariadb_url: str) -> None:
    """A name that is too long is not cut off, and takes its batch along; the next one is well."""
    sink = opened(mariadb_url, "atomic")
    with pytest.raises(pymysql.err.DataError, match="Data too long"):
        sink.write([message("insert", "a"), message("insert", "b" * 600)], 1)
    assert rows_of(mariadb_url, "atomic") == {}
    with pytest.raises(Unwritten, match="Data too long"):
        sink.write([message("insert", "b" * 600)], 1)  # alone it is known to be at fault
    sink.write([message("insert", "a")], 1)
    sink.close()
    assert set(rows_of(mariadb_url, "atomic")) == {"a"}


def test_what_is_nested_too_deeply_is_told_by_its_place(mariadb_url: str) -> None:
    """A feed accepts it; the column's type does not, so that it can be parked."""
    sink = opened(mariadb_url, "nested")
    deep: object = 1
    for _ in range(31):
        deep = [deep]
    with pytest.raises(Unwritten):
        sink.write([message("insert", "a", deep)], 1)
    sink.close()


def test_what_mysql_needs() -> None:
    """An address with a database and a simple name; no secret is shown."""
    for address in ("host/base", "postgresql://host/base", "mysql://host"):
        with pytest.raises(WrongPipeline, match="url must be mysql://user"):
            MySQL(address)
    with pytest.raises(WrongPipeline, match=r"options other than .*: \['compress'\]"):
        MySQL("mysql://host/base?compress=1")
    with pytest.raises(WrongPipeline, match="table must be"):
        MySQL("mysql://host/base", "a`b")
    assert str(MySQL("mysql://me:secret@host:3307/base")) == "table objects at host/base"
    with pytest.raises(pymysql.err.OperationalError):
        MySQL("mysql://127.0.0.1:1/base").open("p.rows")
