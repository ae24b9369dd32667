"""How many operations a second each source of a pipeline brings into a feed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pika  # type: ignore[import-untyped]
import psycopg
import pymysql
from pymongo import MongoClient
from tidings.client.produce.post import Poster
from tidings.pipelines import (
    Kafka,
    KafkaTopics,
    Message,
    MongoCollection,
    MySQLTable,
    RabbitMQ,
    RabbitMQQueue,
    Table,
)
from tidings.pipelines.ingest_source import Reader, append
from tidings.pipelines.sinks.mysql import server_of
from tidings.server.running import Server

from bench.sections import Section, rate
from bench.sinks import NOT_HERE
from tests.pipelines import real_stores, server

_COUNT = 20_000
_TEXT = "x" * 200


class _Source(NamedTuple):
    """*filled* puts `_COUNT` objects to where an address leads, and makes the source of them."""

    shown: str
    running: Callable[[Path], AbstractContextManager[str]]
    filled: Callable[[str], Reader]
    lacks: Callable[[], object]


def measure() -> Section:
    rows = []
    for source in _SOURCES:
        with tempfile.TemporaryDirectory() as name:
            rows.append((source.shown, NOT_HERE if source.lacks() else _read(source, Path(name))))
    return Section(
        "What sources of a pipeline bring",
        "none: a figure for each",
        rows,
        met=None,
        notes=[
            f"{_COUNT:,} objects of some 230 bytes into a server, by one reader; of tables and "
            "collections their copy. What holds them and the server share the machine."
        ],
    )


def _read(source: _Source, folder: Path) -> str:
    (folder / "feed").mkdir()
    with source.running(folder) as address, Server(data=folder / "feed") as host:
        reader, count = source.filled(address), 0
        reader.open("bench.source", {}, lambda kind: ())
        began = time.perf_counter()
        with Poster(host.url) as poster:
            for batch in reader.read():
                if batch.operations or batch.standing:
                    append(poster, "bench.source", batch)
                count += len(batch.operations)
                if count >= _COUNT:
                    break
        took_s = time.perf_counter() - began
        reader.close()
    return rate(_COUNT, took_s)


def _rows() -> list[tuple[str, str]]:
    return [(f"x{number}", _TEXT) for number in range(_COUNT)]


def _messages() -> list[Message]:
    fields = [{"type": "video", "id": name, "data": text} for name, text in _rows()]
    return [Message("insert", "video", "", each, f"6565{0:020}") for each in fields]


def _table(dsn: str) -> Table:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE objects (id text PRIMARY KEY, title text)")
        connection.cursor().executemany("INSERT INTO objects VALUES (%s, %s)", _rows())
    return Table(dsn, "objects", follow=False)


def _mysql(url: str) -> MySQLTable:
    with pymysql.connect(**server_of(url)[0]) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE objects (id varchar(20) PRIMARY KEY, title text)")
        cursor.executemany("INSERT INTO objects VALUES (%s, %s)", _rows())
    return MySQLTable(url, "objects", follow=False)


def _mongodb(url: str) -> MongoCollection:
    with MongoClient[Any](url) as client:
        documents = [{"_id": name, "title": text} for name, text in _rows()]
        client.get_default_database()["objects"].insert_many(documents)
    return MongoCollection(url, "objects", follow=False)


def _kafka(servers: str) -> KafkaTopics:
    sink = Kafka(servers, real_stores.make_topic(servers, "objects", partitions=3))
    sink.open("bench.sink")
    sink.write(_messages(), 1)
    sink.close()
    return KafkaTopics(servers, "objects", envelope="tidings")


def _rabbitmq(url: str) -> RabbitMQQueue:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("objects", durable=True)
    sink = RabbitMQ(url, "objects")
    sink.open("bench.sink")
    sink.write(_messages(), 1)
    sink.close()
    return RabbitMQQueue(url, "objects", envelope="tidings")


_SOURCES = (
    _Source("Table (PostgreSQL)", server.running, _table, lambda: server.binaries() is None),
    _Source(
        "MySQLTable (MariaDB)",
        real_stores.running_mariadb,
        _mysql,
        lambda: real_stores.mariadb_program() is None,
    ),
    _Source(
        "MongoCollection (mongo-java-server)",
        real_stores.running_mongodb,
        _mongodb,
        real_stores.MONGODB.missing,
    ),
    _Source("KafkaTopics", real_stores.running_kafka, _kafka, real_stores.KAFKA.missing),
    _Source(
        "RabbitMQQueue",
        real_stores.running_rabbitmq,
        _rabbitmq,
        lambda: real_stores.rabbitmq_program() is None,
    ),
)
