"""Queries that are killed at every step of a batch, as `kill -9` does, and resume at their
checkpoint."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests import spark_session
from tests.compat.oplog.wire import until
from tests.unit.spark import feeds
from tests.unit.spark.test_batches import ALL, STARTS, place_of
from tests.unit.spark.test_reading import folded
from tidings.client.feeds import Feeds
from tidings.client.poster import Poster
from tidings.server.running import Server
from tidings.spark.reader import StreamReader, TidingsSource

# The last two are the first and second write of a process. Each is a Spark of its own, 10 s of two
# cores: `make kills` takes all of them.
POINTS = ("latestOffset", "initialOffset", "partitions", "read", "written 0", "written 1")
COLD_S = 240.0  # until Spark has started and done two batches, on a busy machine
DIES = "TIDINGS_TEST_DIES"  # the point, the file that records it, and the group of processes


def die(point: str) -> None:
    """Kill the query with its Java if *point* is reached: this process may be one of Java's."""
    wanted, fired, group = os.environ.get(DIES, ",,").split(",")
    if point == wanted:
        with Path(fired).open("a") as file:
            file.write(f"{point}\n")
        os.killpg(int(group), signal.SIGKILL)
        os._exit(1)


class DyingReader(StreamReader):
    def initialOffset(self) -> dict[str, str]:
        die("initialOffset")
        return super().initialOffset()

    def latestOffset(self, *arguments: Any) -> dict[str, str]:
        die("latestOffset")
        return super().latestOffset(*arguments)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Any:
        die("partitions")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Any:
        die("read")
        return super().read(partition)


class Dying(TidingsSource):
    def streamReader(self, schema: StructType) -> StreamReader:
        made = super().streamReader(schema)
        made.__class__ = DyingReader
        assert isinstance(made, StreamReader)
        return made


def query(spark: SparkSession, folder: Path, options: dict[str, str]) -> Any:
    """Start a query with a store that knows a batch by its number, and overwrites attempts."""
    written = itertools.count()  # `start=now` has an empty first batch, which may be done

    def write(frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.select("cursor", "line").collect()]
        with (folder / "tries").open("a") as tries:
            tries.write(f"{batch}\n")
        (folder / f"part-{batch}").write_text(json.dumps(rows))
        die(f"written {next(written)}")

    frame = spark.readStream.format("tidings").options(**options).load()
    asked = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    return asked.foreachBatch(write).start()


def run(folder: Path, options: dict[str, str]) -> None:
    """Run in a process of its own, until it is killed."""
    os.environ[DIES] += f",{os.getpgid(0)}"
    with spark_session.session(folder / "spark") as spark:
        spark.dataSource.register(Dying)
        while True:
            # On a very busy machine, Java may not wait for its Python.
            with suppress(StreamingQueryException):
                query(spark, folder, options).awaitTermination()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.timeout(COLD_S * (len(POINTS) + 1))
@pytest.mark.parametrize("start", STARTS if ALL else ["copy"])
def test_T25_a_killed_query_loses_and_repeats_nothing(
    spark: SparkSession, server: Server, tmp_path: Path, start: str
) -> None:
    """Each operation after the beginning is in one batch; a copy and its log give the state."""
    posted: list[str] = []

    def post(pages: int) -> None:
        with Poster(server.url, start) as poster:
            for _ in range(pages):
                operations = [feeds.operation(len(posted) + each) for each in range(2)]
                posted.extend(poster.post(operations))

    with Feeds(server.url) as api:
        api.create(start)
    post(3)
    options = {"url": server.url, "feed": start, "maxPages": "4", "maxBuckets": "24"}
    options |= {"partitions": "2", "start": posted[1] if start == "cursor" else start}
    points = POINTS if ALL else ("read", "written 1")
    for point in points:
        _kill(tmp_path, point, options, post)
    assert (tmp_path / "fired").read_text().splitlines() == list(points)

    post(1)
    last_page, _ = place_of(posted[-1])
    until(lambda: _run_to_end(spark, tmp_path, options) >= last_page, within_s=COLD_S)

    parts = sorted(tmp_path.glob("part-*"), key=lambda path: int(path.name[5:]))
    rows = [row for part in parts for row in json.loads(part.read_text())]
    tries = [int(each) for each in (tmp_path / "tries").read_text().split()]
    assert tries == sorted(tries)
    if start == "copy":
        log = feeds.rows_of({"url": server.url, "feed": start})
        log.sort(key=lambda row: row["cursor"][8:])
        assert folded([row["line"] for row in rows]) == folded([row["line"] for row in log])
        return
    begun = place_of(_offset(tmp_path, 0)["begun"])
    read = sorted((row["cursor"] for row in rows), key=place_of)
    assert read == (posted if start == "oldest" else [id for id in posted if place_of(id) > begun])


def _kill(folder: Path, point: str, options: dict[str, str], post: Callable[[int], None]) -> None:
    """Run until the kill. Operations are posted in the meantime, for which a query may wait."""
    code = f"from tests.unit.spark.test_killed import *; run(Path({str(folder)!r}), {options!r})"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), DIES: f"{point},{folder / 'fired'}"}
    with (folder / "log").open("a") as log:
        running = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            post(1)
            begun = folder / "checkpoint" / "offsets" / "0"
            until(lambda: begun.exists() or running.poll() is not None, within_s=COLD_S)
            post(1)
            assert running.wait(COLD_S) == -signal.SIGKILL, (folder / "log").read_text()[-2000:]
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


def _run_to_end(spark: SparkSession, folder: Path, options: dict[str, str]) -> int:
    """Read what is there, and return the page that the last committed batch has reached."""
    running = query(spark, folder, options)
    with suppress(StreamingQueryException):
        running.processAllAvailable()
    running.stop()
    commits = (folder / "checkpoint" / "commits").glob("[0-9]*")
    batch = max((int(each.name) for each in commits), default=-1)
    return int(_offset(folder, batch)["cursor"][8:18], 16) if batch >= 0 else 0


def _offset(folder: Path, batch: int) -> dict[str, str]:
    logged = (folder / "checkpoint" / "offsets" / str(batch)).read_text()
    offset: dict[str, str] = json.loads(logged.splitlines()[-1])
    return offset
