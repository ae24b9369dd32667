"""The server and the feeds of named consumers, and one of each real store for all pipelines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]
import pytest
from _pytest.mark import ParameterSet
from pymongo import MongoClient

from tests import lanes
from tests.compat.transporter.conftest import host, pipe, spare
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines import real_stores, search_server, server
from tests.unit.pipelines.real_stores import RealStore

__all__ = ["host", "pipe", "spare"]


LOG_OPTIONS = ("--log-bin", "--server-id=7", "--binlog-format=ROW", "--binlog-row-metadata=FULL")


def needing(fixture: str, value: object) -> ParameterSet:
    """Return *value* as a parameter of tests that get *fixture* by its name."""
    server = "postgresql_url" if fixture == "database" else fixture
    marks = [getattr(pytest.mark, marker) for marker in lanes.servers_of([server])]
    return pytest.param(value, marks=marks, id=fixture)


@contextmanager
def started(running: Callable[[Path], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the address of a store in its own folder; its fixture is in `lanes.SERVERS`."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running(Path(folder)) as address,
    ):
        yield address


@pytest.fixture(scope="package")
def postgresql_url() -> Iterator[str]:
    """Yield the address of a PostgreSQL that is started for the tests."""
    with started(server.running) as url:
        yield url


@pytest.fixture(scope="package")
def database(postgresql_url: str) -> str:
    return postgresql_url


@pytest.fixture(scope="package")
def redis_url() -> Iterator[str]:
    """Yield the address of a Redis or Valkey that is started for the tests."""
    with started(real_stores.running_redis) as url:
        yield url


@pytest.fixture(scope="package")
def mariadb_url() -> Iterator[str]:
    """Yield the address of a MariaDB that is started for the tests."""
    with started(lambda folder: real_stores.running_mariadb(folder, *LOG_OPTIONS)) as url:
        yield url


@pytest.fixture(scope="package")
def rabbitmq_url() -> Iterator[str]:
    """Yield the address of a RabbitMQ that is started for the tests."""
    with started(real_stores.running_rabbitmq) as url:
        yield url


@pytest.fixture(scope="package")
def kafka_servers() -> Iterator[str]:
    """Yield the address of a Kafka that is started for the tests."""
    with started(real_stores.running_kafka) as servers:
        yield servers


@pytest.fixture(scope="package")
def opensearch() -> Iterator[str]:
    """Yield the address of an OpenSearch that is started for the tests."""
    with started(search_server.running_opensearch) as address:
        yield address


@pytest.fixture(scope="package")
def mongodb_url() -> Iterator[str]:
    """Yield an empty database of the MongoDB in the environment, or of a substitute."""
    if named := os.environ.get("TIDINGS_TEST_MONGODB"):
        with MongoClient[Any](named) as client:
            client.drop_database(client.get_default_database())
        yield named
        return
    with started(real_stores.running_mongodb) as url:
        yield url


def _table(dsn: str, name: str) -> RealStore:
    text = f"Postgres({dsn!r}, {name!r})"
    return RealStore("table", text, partial(real_stores.table_of, dsn, name))


def _hash(url: str, name: str) -> RealStore:
    return RealStore("hash", f"Redis({url!r}, {name!r})", partial(real_stores.hash_of, url, name))


def _rows(url: str, name: str) -> RealStore:
    return RealStore("rows", f"MySQL({url!r}, {name!r})", partial(real_stores.rows_of, url, name))


def _documents(url: str, name: str) -> RealStore:
    found = partial(real_stores.collection_of, url, name)
    return RealStore("documents", f"MongoDB({url!r}, {name!r})", found)


def _queue(url: str, name: str) -> RealStore:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(name, durable=True)
    text = f"RabbitMQ({url!r}, {name!r})"
    return RealStore("queue", text, partial(real_stores.queue_of, url, name), "oldest")


def _topic(servers: str, name: str) -> RealStore:
    real_stores.make_topic(servers, name, partitions=3)
    found = partial(real_stores.topic_of, servers, name)
    return RealStore("topic", f"Kafka({servers!r}, {name!r})", found, "oldest")


@pytest.fixture
def stores(
    pipe: Pipe,
    database: str,
    redis_url: str,
    mariadb_url: str,
    mongodb_url: str,
    rabbitmq_url: str,
    kafka_servers: str,
) -> Sequence[RealStore]:
    """Return an empty store of each kind."""
    return [
        _table(database, pipe.feed),
        _hash(redis_url, pipe.feed),
        _rows(mariadb_url, pipe.feed),
        _documents(mongodb_url, pipe.feed),
        _queue(rabbitmq_url, pipe.feed),
        _topic(kafka_servers, pipe.feed),
    ]
