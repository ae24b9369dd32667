"""Measure how many objects a second the sources of databases bring into a feed.

`BEFORE=CHECKOUT/src python -m bench sources` also runs those of another version, in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from .loading import machine
from .results import Section, rate

COUNT = 20_000
RUNS = 3  # the fastest one counts: others share the machine

# Starts an empty database, and inserts `COUNT` rows with numbers from the given one.
_Store = tuple[Callable[[Path], AbstractContextManager[str]], Callable[[str, int], None]]


class _Run(NamedTuple):
    copied_s: float
    followed_s: float
    started_s: float  # until the first object was in the feed
    rss_mb: float

    def described(self) -> str:
        rates = f"copy {rate(COUNT, self.copied_s)}, log {rate(COUNT, self.followed_s)}"
        return f"{rates}; first object after {self.started_s:.1f} s; {self.rss_mb:.0f} MB"


def measure() -> Section:
    trees = {"": "src", " before": os.environ.get("BEFORE", "")}
    best = dict[str, _Run]()
    for kind, store in _stores().items():
        for tree in [name for name, path in trees.items() if path] * RUNS:
            found, name = _measured(kind, store, Path(trees[tree])), f"{kind}{tree}"
            best[name] = _Run(*map(min, zip(found, best.get(name, found), strict=True)))
    return Section(
        "Throughput of the database sources",
        "none: a figure for each",
        [(name, run.described()) for name, run in best.items()],
        notes=[
            f"{COUNT:,} objects of 230 bytes are copied, and as many are read from the log; "
            f"the best of {RUNS}. "
            "MySQLTable reads MariaDB, and MongoCollection a stand-in in memory."
        ],
    )


def _measured(kind: str, store: _Store, tree: Path) -> _Run:
    from tidings.server.running import Server

    running, fill = store
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as address, Server() as host:
        fill(address, 0)
        began_s = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "bench.sources", kind, address, host.url],
            env={**os.environ, "PYTHONPATH": str(tree.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdin is not None and reader.stdout is not None
            first_s, copied_s = json.loads(reader.stdout.readline())
            fill(address, COUNT)
            reader.stdin.write("\n")
            reader.stdin.flush()
            (followed_s,) = json.loads(reader.stdout.readline())
            rss_mb = machine.resident(reader.pid) / 1024**2
    return _Run(copied_s, followed_s, first_s - began_s, rss_mb)


def _read(kind: str, address: str, url: str) -> None:
    """Copy `COUNT` objects, wait for a line, and read as many from the log; print the times."""
    from tidings import pipelines
    from tidings.client.poster import Poster
    from tidings.pipelines.ingest_source import append

    reader, count, first_s = getattr(pipelines, kind)(address, "objects"), 0, 0.0
    reader.open("bench.source", {}, lambda kind: ())
    began_s = time.monotonic()
    with Poster(url) as poster:
        for batch in reader.read():
            if batch.operations or batch.state:
                append(poster, "bench.source", batch)
            first_s = first_s or (time.monotonic() if batch.operations else 0.0)
            is_copied = count < COUNT <= count + len(batch.operations)
            count += len(batch.operations)
            if is_copied:
                _answer(first_s, time.monotonic() - began_s)
                began_s = time.monotonic()
            if count >= 2 * COUNT:
                break
        _answer(time.monotonic() - began_s)


def _answer(*found: float) -> None:
    print(json.dumps(found), flush=True)  # noqa: T201
    sys.stdin.readline()


def _stores() -> dict[str, _Store]:
    import psycopg
    import pymysql
    from pymongo import MongoClient

    from tests.unit.pipelines import real_stores, server
    from tests.unit.pipelines.conftest import LOG_OPTIONS
    from tidings.pipelines.mysql import server_of

    def rows(first: int) -> list[tuple[str, str]]:
        return [(f"x{number}", "x" * 200) for number in range(first, first + COUNT)]

    make = "CREATE TABLE IF NOT EXISTS objects (id varchar(20) PRIMARY KEY, title text)"

    def insert(connection: Any, first: int) -> None:
        with connection, connection.cursor() as cursor:
            cursor.execute(make)
            cursor.executemany("INSERT INTO objects VALUES (%s, %s)", rows(first))
            connection.commit()

    def insert_documents(url: str, first: int) -> None:
        with MongoClient[Any](url) as client:
            documents = client.get_default_database()["objects"]
            documents.insert_many([{"_id": name, "title": text} for name, text in rows(first)])

    def mariadb(folder: Path) -> AbstractContextManager[str]:
        return real_stores.running_mariadb(folder, *LOG_OPTIONS)

    return {
        "Table": (server.running, lambda dsn, at: insert(psycopg.connect(dsn), at)),
        "MySQLTable": (mariadb, lambda url, at: insert(pymysql.connect(**server_of(url)[0]), at)),
        "MongoCollection": (real_stores.running_mongodb, insert_documents),
    }


if __name__ == "__main__":
    _read(*sys.argv[1:])
