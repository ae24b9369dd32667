"""How many messages a second each store of a pipeline takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from tidings.pipelines import (
    Feed,
    Kafka,
    Message,
    MySQL,
    Ndjson,
    Parquet,
    Postgres,
    Redis,
    Search,
)
from tidings.server.running import Server

from bench.sections import Section, rate
from bench.workload import operations
from tests.pipelines import real_stores, search_server, server

_COUNT = 20_000
_BATCH = 1_000
NOT_HERE = "not measured: not installed here"


class _Store(NamedTuple):
    """A sink that *made* makes of the address of a store; *lacks* says why there is none."""

    shown: str
    running: Callable[[Path], AbstractContextManager[Any]]
    made: Callable[[Any], Any]
    lacks: Callable[[], object] = lambda: False


def measure() -> Section:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for store in _STORES:
            folder = Path(tempfile.mkdtemp(dir=name))
            rows.append((store.shown, NOT_HERE if store.lacks() else _taken(store, folder)))
    return Section(
        "What stores of a pipeline take",
        "none: a figure for each",
        rows,
        met=None,
        notes=[
            f"{_COUNT:,} messages of 250 bytes, each another object, in batches of {_BATCH:,}, by "
            "one sink; then the same ones again. The store shares the machine, and flushes as its "
            "tests have it: PostgreSQL without fsync, MariaDB each second, Redis and Kafka "
            "never."
        ],
    )


def _taken(store: _Store, folder: Path) -> str:
    messages = [
        Message("insert", made["type"], "", made, f"65650000{at // 1000 + 1:010x}{at % 1000:06x}")
        for at, made in enumerate(operations(_COUNT))
    ]
    with store.running(folder) as address:
        sink = store.made(address)
        sink.open("bench.sink")
        first, again = _seconds(sink, messages), _seconds(sink, messages)
        sink.close()
    return f"{rate(_COUNT, first)}; the same again {rate(_COUNT, again)}"


def _seconds(sink: Any, messages: list[Message]) -> float:
    began = time.perf_counter()
    for at in range(0, _COUNT, _BATCH):
        sink.write(messages[at : at + _BATCH], 1)
    return time.perf_counter() - began


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    with Server(data=folder) as host:
        yield host.url


@contextmanager
def _kafka(folder: Path) -> Iterator[str]:
    with real_stores.running_kafka(folder) as servers:
        real_stores.make_topic(servers, "objects", partitions=3)
        yield servers


_STORES = (
    _Store("Postgres", server.running, Postgres, lambda: server.binaries() is None),
    _Store(
        "MySQL (MariaDB)",
        real_stores.running_mariadb,
        MySQL,
        lambda: real_stores.mariadb_program() is None,
    ),
    _Store("Redis", real_stores.running_redis, Redis, lambda: real_stores.redis_program() is None),
    _Store("Kafka", _kafka, Kafka, real_stores.KAFKA.missing),
    _Store(
        "Search (OpenSearch)",
        search_server.running_opensearch,
        Search,
        search_server.OPENSEARCH.missing,
    ),
    _Store(
        "Search (Elasticsearch)",
        search_server.running_elasticsearch,
        Search,
        search_server.missing_elasticsearch,
    ),
    _Store("Parquet", nullcontext, Parquet),
    _Store("Ndjson", lambda folder: nullcontext(folder / "objects.json"), Ndjson),
    _Store("Feed (a server)", _server, Feed),
)
