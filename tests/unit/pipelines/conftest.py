"""The server and the feeds of named consumers, and one of each real store for all pipelines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pika  # type: ignore[import-untyped]
import pytest
from pymongo import MongoClient

from tests.compat.transporter.conftest import host, pipe, spare
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines import real_stores, server
from tests.unit.pipelines.real_stores import RealStore

__all__ = ["host", "pipe", "spare"]


Made = TypeVar("Made")
LOG_OPTIONS = ("--log-bin", "--server-id=7", "--binlog-format=ROW", "--binlog-row-metadata=FULL")


def each_installed(
    request: pytest.FixtureRequest, kinds: Mapping[str, Callable[[str, str], Made]], name: str
) -> list[Made]:
    """
    Make one called *name* of each kind that is installed; tests of one kind say what is missing.

    *kinds* are by the fixture of their address.
    """
    found = []
    for fixture, make in kinds.items():
        try:
            found.append(make(request.getfixturevalue(fixture), name))
        except pytest.skip.Exception:
            continue
    return found


@contextmanager
def started(lacking: str, running: Callable[[Path], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the address of a store in its own folder; *lacking* is the reason if there is none."""
    if lacking:
        pytest.skip(lacking)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running(Path(folder)) as address,
    ):
        yield address


def lacking(program: object, name: str, packages: str) -> str:
    return "" if program else f"{name} is not installed: apt-get install {packages}"


@pytest.fixture(scope="package")
def database() -> Iterator[str]:
    """Yield the address of a PostgreSQL that is started for the tests."""
    with started(lacking(server.binaries(), "PostgreSQL", "postgresql"), server.running) as url:
        yield url


@pytest.fixture(scope="package")
def redis_url() -> Iterator[str]:
    """Yield the address of a Redis or Valkey that is started for the tests."""
    missing = lacking(real_stores.redis_program(), "Redis", "redis-server (or valkey-server)")
    with started(missing, real_stores.running_redis) as url:
        yield url


@pytest.fixture(scope="package")
def mariadb_url() -> Iterator[str]:
    """Yield the address of a MariaDB that is started for the tests."""
    missing = lacking(real_stores.mariadb_program(), "MariaDB", "mariadb-server")
    with started(missing, lambda folder: real_stores.running_mariadb(folder, *LOG_OPTIONS)) as url:
        yield url


@pytest.fixture(scope="package")
def rabbitmq_url() -> Iterator[str]:
    """Yield the address of a RabbitMQ that is started for the tests."""
    missing = lacking(real_stores.rabbitmq_program(), "RabbitMQ", "rabbitmq-server")
    with started(missing, real_stores.running_rabbitmq) as url:
        yield url


@pytest.fixture(scope="package")
def kafka_servers() -> Iterator[str]:
    """Yield the address of a Kafka that is started for the tests."""
    with started(real_stores.KAFKA.missing(), real_stores.running_kafka) as servers:
        yield servers


@pytest.fixture(scope="package")
def mongodb_url() -> Iterator[str]:
    """Yield an empty database of the MongoDB in the environment, or of a substitute."""
    if named := os.environ.get("TIDINGS_TEST_MONGODB"):
        with MongoClient[Any](named) as client:
            client.drop_database(client.get_default_database())
        yield named
        return
    with started(real_stores.MONGODB.missing(), real_stores.running_mongodb) as url:
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


# By the fixture of their address.
_STORES = {
    "database": _table,
    "redis_url": _hash,
    "mariadb_url": _rows,
    "mongodb_url": _documents,
    "rabbitmq_url": _queue,
    "kafka_servers": _topic,
}


@pytest.fixture
def stores(pipe: Pipe, request: pytest.FixtureRequest) -> Sequence[RealStore]:
    """Return an empty store of each kind that is installed."""
    return each_installed(request, _STORES, pipe.feed)
