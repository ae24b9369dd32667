"""A pipeline into three stores, and what a fourth that is slow costs them."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tidings.client.produce.post import Poster
from tidings.pipelines import Call, Feed, Message, Parquet, Pipeline, Postgres, Source, omit
from tidings.pipelines.runner import Runner
from tidings.twin.running import Twin

from bench.sections import Section, rate
from bench.workload import operations
from tests.pipelines import server

SLOWED_MAX = 1.10  # of the time of a store beside a slow one
_COUNT = 20_000
_PAGE = 100
_RUNS = 3  # of each kind, in turns
_SLOW_S = 0.5  # a batch of the slow store: it has not seen a tenth when the others are done
_LOOK_S = 0.01
_STORES = ("Parquet", "PostgreSQL", "feed")


def measure() -> Section:
    feeds = [f"copy{number}" for number in range(2 * _RUNS)]
    with (
        tempfile.TemporaryDirectory() as folder,
        server.running(Path(folder)) as dsn,
        Twin("--feeds", ",".join(["main", *feeds])) as twin,
    ):
        _post(twin.url)
        runs: dict[bool, list[list[float]]] = {False: [], True: []}
        for number, feed in enumerate(feeds):
            slow = number % 4 in (1, 2)  # in turns, neither always first
            pipeline = _pipeline(twin.url, dsn, Path(folder) / feed, feed)
            if slow:
                pipeline.save("slow", Call(_wait), bulk=100)
            runs[slow].append(_run(pipeline))
    return _section(*(_medians(runs[slow]) for slow in (False, True)))


def _medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """Of each store."""
    return [statistics.median(times) for times in zip(*runs, strict=True)]


def _section(alone: Sequence[float], beside: Sequence[float]) -> Section:
    ratios = [slowed / free for free, slowed in zip(alone, beside, strict=True)]
    rows = [("all three stores", f"{rate(_COUNT, max(alone))} messages each")]
    for name, seconds, ratio in zip(_STORES, alone, ratios, strict=True):
        told = f"{rate(_COUNT, seconds)}; beside a slow store {ratio:.2f} of the time"
        rows.append((f"into {name}", told))
    return Section(
        "A pipeline into three stores",
        f"a slow store slows no other by more than {SLOWED_MAX - 1:.0%}",
        rows,
        met=max(ratios) <= SLOWED_MAX,
        notes=(
            f"{_COUNT:,} operations, two functions, from the first message to the last one that is "
            f"acknowledged; medians of {_RUNS} runs of each kind, in turns. The stores, the twin, "
            "its DynamoDB Local and PostgreSQL share the machine.",
        ),
    )


def _post(url: str) -> None:
    made = list(operations(_COUNT))
    with Poster(url) as poster:
        for at in range(0, _COUNT, _PAGE):
            poster.post(made[at : at + _PAGE])


def _pipeline(url: str, dsn: str, folder: Path, feed: str) -> Pipeline:
    source = Source(url, start="oldest")
    steps = (omit("data.secret"), _shout)
    pipeline = Pipeline(feed, source)
    pipeline.save("parquet", Parquet(folder), *steps)
    pipeline.save("table", Postgres(dsn, table=feed), *steps)
    pipeline.save("feed", Feed(url, feed), *steps)
    return pipeline


def _shout(message: Message) -> Message:
    message.data["shouted"] = message.key.upper()
    return message


def _wait(batch: Sequence[Message]) -> None:
    time.sleep(_SLOW_S)


def _run(pipeline: Pipeline) -> list[float]:
    """Seconds from the first message of any store until each of the three has everything."""
    runner = Runner(pipeline, lambda event: None)
    thread = threading.Thread(target=runner.run)
    thread.start()
    stores = runner.progress[: len(_STORES)]
    while not any(store.records for store in stores):
        time.sleep(_LOOK_S)
    started, ended = time.perf_counter(), dict[str, float]()
    while len(ended) < len(stores):
        time.sleep(_LOOK_S)
        for store in stores:
            assert store.state != "failed", store.error
            if store.records >= _COUNT:
                ended.setdefault(store.name, time.perf_counter() - started)
    runner.stop()
    thread.join()
    return [ended[store.name] for store in stores]
