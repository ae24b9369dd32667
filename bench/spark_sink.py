"""How fast Spark appends to a feed, and how much of that its sink and the server could do."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from tidings.server.running import Server
from tidings.spark.columns import BATCH_LINES
from tidings.spark.sink import pages

from bench import receiver, spark
from bench.loading import machine
from bench.sections import Section
from bench.workload import operations

TARGET = 100_000  # operations a second to one server, on two cores
_COUNT = 500_000
_FILES = 4  # so that there are as many tasks, two at a time
_SCHEMA = pa.schema(
    {name: pa.string() for name in ("event", "type", "id")}
    | {"parents": pa.list_(pa.string()), "timestamp": pa.timestamp("us", tz="UTC")}
)


def measure() -> Section:
    """COUNT=100000 appends so many."""
    count = int(os.environ.get("COUNT", _COUNT))
    with (
        tempfile.TemporaryDirectory() as name,
        receiver.running() as (port, counted),
        spark.session(name) as session,
    ):
        folder = Path(name) / "operations"
        table = _fill(folder, count)
        append = partial(_append, session, folder)
        append(url := f"http://127.0.0.1:{port}")  # the first one compiles
        at_once, spark_us = spark.best(session, count, partial(append, url))
        assert counted() == count * (1 + spark.RUNS)
        with Server() as server:
            served, beside_us = spark.best(session, count, partial(append, server.url))
            server_us = machine.cpu_s(server.pid) / (count * spark.RUNS) * 1e6
    return Section(
        f"Spark appends {count:,} operations",
        f"at least {TARGET:,} operations a second to a server, on two cores",
        [
            ("the sink alone, in a second of one core", _a_second(_alone(table))),
            ("to a receiver that answers at once", _a_second(at_once)),
            ("CPU of Spark for it, JVM and workers", _each(spark_us)),
            ("to a server", _a_second(served)),
            ("CPU of Spark for it", _each(beside_us)),
            ("CPU of the server, most of it of one core", _each(server_us)),
        ],
        served >= TARGET,
        [
            f"`local[2]`, {_FILES} tasks, from Parquet; the best of {spark.RUNS} runs each."
            " Receiver and server share the machine."
        ],
    )


def _fill(folder: Path, count: int) -> pa.Table:
    rows = [
        each | {"timestamp": datetime.fromisoformat(each["timestamp"])}
        for each in operations(count)
    ]
    table = pa.Table.from_pylist(rows, _SCHEMA)
    folder.mkdir()
    size = -(-count // _FILES)
    for first in range(0, count, size):
        pq.write_table(table.slice(first, size), folder / f"{first}.parquet")
    return table


def _alone(table: pa.Table) -> float:
    """Without Spark around it and without posting."""
    batches = table.to_batches(BATCH_LINES)
    started = time.process_time()
    count = sum(len(lines) for _, lines in pages(batches, _SCHEMA.names))
    return float(count / (time.process_time() - started))


def _append(session: SparkSession, folder: Path, url: str) -> None:
    frame = session.read.parquet(str(folder))
    frame.write.format("tidings").option("url", url).mode("append").save()


def _a_second(each: float) -> str:
    return f"{each:,.0f} a second"


def _each(micros: float) -> str:
    return f"{micros:.1f} µs an operation"
