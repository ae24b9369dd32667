"""Refusals of a store or a source that pass: the pipeline waits, and then continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import httpx
import pika  # type: ignore[import-untyped]
import psycopg
import pymysql
import pytest
import redis

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.test_running import Running, caught_up, objects_of
from tidings.pipelines import (
    Call,
    MySQLTable,
    Pipeline,
    Postgres,
    PostgresTable,
    RabbitMQ,
    Redis,
    Search,
    Source,
)
from tidings.pipelines.mysql import server_of

WELL = {"starting", "running", "standing by"}
WITHIN_S = 60


@contextmanager
def replica(url: str, name: str) -> Iterator[None]:
    """A failover made the server a replica, which only reads."""
    with redis.Redis.from_url(url) as client:
        client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            client.replicaof("NO", "ONE")


@contextmanager
def full_memory(url: str, name: str) -> Iterator[None]:
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def full_disk(url: str, name: str) -> Iterator[None]:
    """The server blocks writes to the index, as it does on a disk that is nearly full."""
    path = f"{url}/{name}/_settings"
    for value in (True, None):
        setting = {"index.blocks.read_only_allow_delete": value}
        httpx.put(path, json=setting, timeout=60).raise_for_status()
        if value:
            yield


@contextmanager
def full_queue(url: str, name: str) -> Iterator[None]:
    """It has room for one message; the readers of the queue were away."""
    yield
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_purge(name)


@contextmanager
def read_only(dsn: str, name: str) -> Iterator[None]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET ALL")
            connection.execute("SELECT pg_reload_conf()")


def queue(url: str, name: str) -> RabbitMQ:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
        connection.channel().queue_declare(name, durable=True, arguments=limit)
    return RabbitMQ(url, name)


class Refusal(NamedTuple):
    """A store, and what makes it refuse everything for a while."""

    fixture: str
    store: Callable[[str, str], Any]
    refusing: Callable[[str, str], AbstractContextManager[None]]


REFUSALS = [
    Refusal("redis_url", Redis, replica),
    Refusal("redis_url", Redis, full_memory),
    Refusal("opensearch", Search, full_disk),
    Refusal("rabbitmq_url", queue, full_queue),
    Refusal("postgresql_url", Postgres, read_only),
]


def state(running: Running) -> str:
    return running.runner.progress[0].state


@pytest.mark.parametrize("refusal", [needing(each.fixture, each) for each in REFUSALS])
def test_what_a_store_refuses_for_a_while_is_written_later(
    refusal: Refusal, pipe: Pipe, request: pytest.FixtureRequest
) -> None:
    """Also with a single attempt: the messages are not at fault, and no operator is needed."""
    url = request.getfixturevalue(refusal.fixture)
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("one", refusal.store(url, pipe.feed))
    pipe.post("a")
    with Running(pipeline, attempts=1) as running:
        until(lambda: caught_up(pipe, "p.one"), within_s=WITHIN_S)
        with refusal.refusing(url, pipe.feed):
            pipe.post("a")
            until(lambda: state(running) not in WELL, within_s=WITHIN_S)
        until(lambda: caught_up(pipe, "p.one") or state(running) == "failed", within_s=WITHIN_S)
        assert caught_up(pipe, "p.one")


def test_a_row_that_is_locked_for_long_is_read_later(pipe: Pipe, mariadb_url: str) -> None:
    """The server waits a second for a lock here, else 50."""
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.read("r", MySQLTable(mariadb_url, pipe.feed)).save("out", Call(lambda batch: None))
    with pymysql.connect(**server_of(mariadb_url)[0]) as owner, owner.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_lock_wait_timeout = 1")
        cursor.execute(f"CREATE TABLE {pipe.feed} (id int PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {pipe.feed} VALUES (1)")
        owner.commit()
        owner.begin()
        cursor.execute(f"SELECT * FROM {pipe.feed} FOR UPDATE")
        with Running(pipeline, attempts=1) as running:
            until(lambda: state(running) not in WELL, within_s=WITHIN_S)
            owner.rollback()
            cursor.execute("SET GLOBAL innodb_lock_wait_timeout = DEFAULT")
            until(lambda: "1" in objects_of(pipe) or state(running) == "failed", within_s=WITHIN_S)
            assert "1" in objects_of(pipe)


def test_a_reader_that_waits_for_others_can_be_stopped(pipe: Pipe, database: str) -> None:
    """A new slot waits for all open transactions."""
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    reader = PostgresTable(database, pipe.feed, slot=pipe.feed)
    pipeline.read("r", reader).save("out", Call(lambda batch: None))
    with psycopg.connect(database) as idle, psycopg.connect(database, autocommit=True) as watching:
        watching.execute(f"CREATE TABLE {pipe.feed} (id int PRIMARY KEY)".encode())
        idle.execute(f"INSERT INTO {pipe.feed} VALUES (1)".encode())
        with Running(pipeline, attempts=1) as running:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
            until(lambda: watching.execute(waiting).fetchall() != [], within_s=WITHIN_S)
            running.runner.stop()
            running.thread.join(10)
            is_stopped = not running.thread.is_alive()
            idle.rollback()
        watching.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        assert is_stopped


def test_a_row_above_the_limit_is_named(pipe: Pipe, mariadb_url: str) -> None:
    """A feed has objects of at most 64 KB; the owner must know which row it is."""
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.read("r", MySQLTable(mariadb_url, pipe.feed)).save("out", Call(lambda batch: None))
    with pymysql.connect(**server_of(mariadb_url)[0]) as owner, owner.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {pipe.feed} (id int PRIMARY KEY, v mediumtext)")
        cursor.execute(f"INSERT INTO {pipe.feed} VALUES (4711, repeat('z', 70000))")
        owner.commit()
    with Running(pipeline, attempts=1) as running:
        until(lambda: state(running) == "failed", within_s=WITHIN_S)
        assert "4711" in running.runner.progress[0].error
