"""The content of batches when a query fails at any call.

`Driver` calls the reader in the orders that Spark 4.1 was traced to use, for the triggers default,
`once` and `availableNow` alike. The sink keeps each batch under its number.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.compat.oplog.wire import until
from tests.unit.spark import feeds
from tests.unit.spark.test_reading import folded
from tidings.client.errors import Refused
from tidings.client.feeds import Feeds
from tidings.client.poster import Poster
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.server.running import Server
from tidings.spark.reader import StreamReader, TidingsSource

# A failure of a real query takes a second or two of two cores: `make kills` takes all of them.
ALL = os.environ.get("KILLS") == "all"
SEEDS = 100 if ALL else 25  # for each start
STARTS = ("oldest", "now", "copy", "cursor")
FAILURES = 6  # a run; afterwards the query reads the rest
Rows = list[dict[str, Any]]


class Crash(Exception):
    pass


class Driver:
    """A streaming query with its checkpoint; *crash* may raise `Crash` around each call."""

    def __init__(self, options: dict[str, str], crash: Callable[[], None]) -> None:
        self._options, self._crash = options, crash
        self.offsets: list[dict[str, str]] = []
        self.sink: dict[int, Rows] = {}
        self.committed = 0

    def run(self, batches: int) -> bool:
        """Read at most *batches* batches; return True if nothing is left."""
        source = TidingsSource(self._options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, StreamReader)
        if self.offsets:
            self._call(reader.partitions, self.offsets[-1], self.offsets[-1])
        for _ in range(batches):
            if len(self.offsets) == self.committed and not self._next(reader):
                return True
            number = self.committed
            begin = self.offsets[number - 1] if number else self._call(reader.initialOffset)
            tasks = self._call(reader.partitions, begin, self.offsets[number])
            # Spark pickles a reader of its own for the tasks.
            rows = [row for task in tasks for row in feeds.of_task(reader, task)]
            self._call(self.sink.__setitem__, number, rows)
            self.committed += 1
        return False

    def run_again(self, batches: int) -> bool:
        """Run, and return False, so that a caller that waits runs it again."""
        self.run(batches)
        return False

    def _next(self, reader: StreamReader) -> bool:
        end = self._call(reader.latestOffset)
        if self.offsets and end == self.offsets[-1]:
            return False
        self._call(self.offsets.append, end)
        return True

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._crash()
        result = function(*arguments)
        self._crash()
        return result

    def has_read(self, id: str) -> bool:
        at = cursors.parse(self.offsets[-1]["cursor"])
        return isinstance(at, Place) and at.page >= place_of(id)[0]

    @property
    def rows(self) -> Rows:
        return [row for number in sorted(self.sink) for row in self.sink[number]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_failure_at_any_call_loses_and_repeats_nothing(
    server: Server, start: str, seed: int
) -> None:
    """Each operation after the beginning is in one batch; a copy and its log give the state."""
    chance, feed = random.Random(seed), f"s{seed}-{start}"
    _create(server, feed)
    posted: list[str] = []
    failures = FAILURES

    def post() -> None:
        operations = [feeds.operation(len(posted) + each) for each in range(chance.randint(1, 4))]
        with Poster(server.url, feed) as poster:
            posted.extend(poster.post(operations))

    def crash() -> None:
        nonlocal failures
        if failures and chance.random() < 0.1:
            post()
        if failures and chance.random() < 0.15:
            failures -= 1
            raise Crash

    for _ in range(4):
        post()
    options = {"url": server.url, "feed": feed, "partitions": "2"}
    place = {"start": posted[3] if start == "cursor" else start}
    driver = Driver(options | place | {"maxPages": "2", "maxBuckets": "24"}, crash)
    while failures:
        _survive(partial(driver.run, 3))
    post()
    until(lambda: driver.run(3) and driver.has_read(posted[-1]))  # the server caches its end

    if start == "copy":
        log = sorted(feeds.rows_of(options), key=lambda row: row["cursor"][8:])
        assert folded([row["line"] for row in driver.rows]) == folded([row["line"] for row in log])
        return
    begun = place_of(driver.offsets[0]["begun"])
    read = sorted(row["cursor"] for row in driver.rows)
    assert read == (posted if start == "oldest" else [id for id in posted if place_of(id) > begun])


def _create(server: Server, feed: str) -> None:
    with Feeds(server.url) as api:
        api.create(feed)


def _posted(server: Server, feed: str, pages: int) -> list[str]:
    """Post to *feed*, which is created if it is missing, and return the ids."""
    with suppress(Refused):
        _create(server, feed)
    with Poster(server.url, feed) as poster:
        return [
            id
            for at in range(pages)
            for id in poster.post([feeds.operation(at * 2), feeds.operation(at * 2 + 1)])
        ]


def _has_state(driver: Driver, server: Server, feed: str) -> bool:
    driver.run(9)
    state = feeds.rows_of({"url": server.url, "feed": feed, "what": "state"})
    found = folded([row["line"] for row in driver.rows[1:]])
    return found == folded([row["line"] for row in state])


def _survive(run: Callable[[], Any]) -> None:
    with suppress(Crash):
        run()


def place_of(id: str) -> tuple[int, int]:
    place = cursors.parse(id)
    assert isinstance(place, Place)
    return place.page, place.slot


def test_a_batch_that_failed_is_read_again_from_a_restored_feed(tmp_path: Path) -> None:
    """The feed lost the end of the batch: the batch is empty, and a copy of everything follows."""
    data, kept, drivers = tmp_path / "data", tmp_path / "kept", dict[str, Driver]()
    failing = False

    def crash() -> None:
        if failing and len(driver.offsets) > driver.committed:
            raise Crash

    with Server(data=data) as server:
        posted = {start: _posted(server, start, 2) for start in STARTS}
        server.stop()
        shutil.copytree(data, kept)
        server.start()
        for start, ids in posted.items():
            place = ids[1] if start == "cursor" else start
            options = {"url": server.url, "feed": start, "start": place, "maxPages": "9"}
            driver = drivers[start] = Driver(options | {"partitions": "2"}, crash)
            if start == "now":
                driver.run(1)  # an empty batch with the place where the stream began
            _posted(server, start, 2)
            failing = True
            _survive(partial(until, partial(driver.run_again, 1)))
            failing = False
        server.stop()
        shutil.rmtree(data)
        shutil.copytree(kept, data)
        server.start()
        for start, driver in drivers.items():
            _posted(server, start, 1)
            until(partial(_has_state, driver, server, start))
            assert driver.rows[0]["event"] == "reset"


@pytest.mark.parametrize("start", ["oldest", "copy", "two"] if ALL else ["two"])
def test_real_queries_that_fail_lose_and_repeat_nothing(
    spark: SparkSession, server: Server, tmp_path: Path, start: str
) -> None:
    """Each of the first four batches fails twice: before and after it is written."""
    names = [f"real-{start}-{number}" for number in range(2 if start == "two" else 1)]
    options = {"url": server.url, "start": start.replace("two", "oldest"), "partitions": "2"}
    options |= {"maxPages": "2", "maxBuckets": "16", "columns": "id"}
    sink: dict[int, list[str]] = {}
    failures = [(batch, written) for batch in range(4) for written in (False, True)]
    for name in names:
        _create(server, name)
        with Poster(server.url, name) as poster:
            for number in range(8):
                poster.post([{"event": "insert", "type": "video", "id": f"{name}-{number}"}])

    def write(frame: DataFrame, batch: int) -> None:
        rows = [row.id for row in frame.collect()]
        written = (batch, False) not in failures
        if written:
            sink[batch] = rows
        if (batch, written) in failures:
            failures.remove((batch, written))
            raise Crash

    def frame() -> DataFrame:
        read = spark.readStream.format("tidings").options(**options)
        return reduce(DataFrame.union, (read.option("feed", each).load() for each in names))

    while failures:
        asked = frame().writeStream.option("checkpointLocation", str(tmp_path))
        running = asked.foreachBatch(write).start()
        with suppress(StreamingQueryException):
            running.processAllAvailable()
        running.stop()

    read = [id for batch in sink.values() for id in batch]
    assert sorted(read) == sorted(f"{name}-{number}" for name in names for number in range(8))
