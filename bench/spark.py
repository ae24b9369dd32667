"""Measure how fast Spark reads a feed: from the archive, from its tables, over HTTP."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.loading import machine
from bench.results import Section
from bench.workload import operations
from tests.twin import Twin
from tidings.aws.effects import now_ms
from tidings.core.archive import segments
from tidings.core.model import pages
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.spark import register
from tidings.spark.reader import TidingsSource
from tidings.sync.feed import on_endpoint
from tidings.sync.spark_session import DAEMON

_ARCHIVE_TARGET, _LOG_TARGET = 400_000, 50_000  # operations a second on two cores
_COUNT = 1_000_000
_LOG_COUNT = 300_000
_PAGE = 100
_PARTS = 20
_RUNS = 3
_FEED = "main"
_OBJECTS = 1_000  # few, so that the state catches up soon; it is not read here
_ALL_COLUMNS = "from the archive, every column"
_LOG = "from the log by its tables, every column"


def measure() -> Section:
    """Measure the reads.

    COUNT=100000 reads that many operations from the archive, and at most 300,000 from the log.
    """
    count = int(os.environ.get("COUNT", _COUNT))
    few = min(count, _LOG_COUNT)
    with tempfile.TemporaryDirectory() as folder, Twin() as twin, _session(folder) as spark:
        _fill_archive(Path(folder), count)
        _fill_log(twin, few)
        archive = {"archive": f"file://{folder}", "partitions": "4"}
        tables = {"endpoint": twin.dynamodb_url, "partitions": "4"}
        _read(spark, archive).count()  # the first read compiles
        whole, micros = _best(spark, count, _written(_read(spark, archive)))
        found = {
            "the reader alone, in a second of one core": _alone(archive),
            _ALL_COLUMNS: whole,
            _LOG: _rate(_read(spark, tables), few),
            "from the log over HTTP, every column": _rate(
                _read(spark, {"url": twin.url, "partitions": "2"}), few
            ),
        }
    rows = [(what, f"{each:,.0f} a second") for what, each in found.items()]
    rows.insert(2, ("CPU of Spark for it, JVM and workers", f"{micros:.1f} µs an operation"))
    return Section(
        f"Spark reads a feed of {count:,} operations",
        f"at least {_ARCHIVE_TARGET:,} operations a second from the archive"
        f" and {_LOG_TARGET:,} from the log, on two cores",
        rows,
        whole >= _ARCHIVE_TARGET and found[_LOG] >= _LOG_TARGET,
        [
            f"`local[2]`, pages of {_PAGE}, {_PARTS} parts; of the log {few:,} operations."
            f" The best of {_RUNS} runs each."
        ],
    )


def _read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("tidings").options(**options).load()


def _rate(frame: DataFrame, count: int) -> float:
    return _best(frame.sparkSession, count, _written(frame))[0]


def _written(frame: DataFrame) -> Callable[[], None]:
    return frame.write.format("noop").mode("overwrite").save


def _best(spark: SparkSession, count: int, act: Callable[[], None]) -> tuple[float, float]:
    """Return operations a second, and microseconds of Spark's CPU for each, including its workers.

    It is the best of several runs, because other work on the machine can only slow them down.
    """
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm, runs = gateway.proc.pid, list[tuple[float, float]]()
    for _ in range(_RUNS):
        started, before_s = time.perf_counter(), machine.cpu_s(jvm)
        act()
        seconds, cpu_s = time.perf_counter() - started, machine.cpu_s(jvm) - before_s
        runs.append((count / seconds, cpu_s / count * 1e6))
    rates, micros = zip(*runs, strict=True)
    return max(rates), min(micros)


def _alone(options: dict[str, str]) -> float:
    """Measure the reader without Spark, by CPU time, which varies less on a busy machine."""
    source = TidingsSource(options)
    reader: Any = source.reader(source.schema())
    started = time.process_time()
    count = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    return float(count / (time.process_time() - started))


@contextmanager
def _session(folder: str) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.python.daemon.module", DAEMON)  # docs/guides/SPARK.md
    spark = builder.config("spark.local.dir", folder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _made(count: int) -> Iterator[Page]:
    at_ms = now_ms()
    lines = [line_from(raw, now_ms=at_ms) for raw in operations(count, objects=_OBJECTS)]
    for number, first in enumerate(range(0, count, _PAGE), 1):
        body = pages.encode(lines[first : first + _PAGE])
        yield Page(number, body, f"bench-{number}", at_ms, at_ms + 7 * 24 * 3600 * 1000)


def _fill_archive(folder: Path, count: int) -> None:
    kept = list(_made(count))
    size = -(-len(kept) // _PARTS)
    for first in range(0, len(kept), size):
        FolderArchive(folder).put(_FEED, *segments.encode(kept[first : first + size]))


def _fill_log(twin: Twin, count: int) -> None:
    """Write pages as `ingest` does, and wait until the followers have handled them."""
    place = on_endpoint(_FEED, twin.dynamodb_url)
    log, last = place.stores.log, 0
    for page in _made(count):
        last = log.take(_FEED, _PAGE)
        log.put(_FEED, page)
    while place.stores.followers.checkpoints(_FEED).get("state", 0) < last:
        time.sleep(1)
