"""Measure the comparison of a dump with a state of the same size, by Spark and by Sail.

`python -m bench.diff` compares 100,000,000 objects by Spark.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .loading import machine
from .results import Section

_SIZES = (2_000_000, 10_000_000)
_LARGE = 100_000_000  # more than Sail can hold
_RSS_MAX_MB = 2_000
_GROWTH_MAX = 5.5  # of the time, from 2 to 10 million
_WITH_DATA_MAX = 1.3  # times the CPU of lines without
_MEASURE_S = 0.1
_FAILED = -1
_DATA = '{"title":"A title, as they are","views":12345,"tags":["a","b"],"o":{"x":1.5,"y":null}}'
_DAY = "2024-01-{:02}T{:02}:{:02}:{:02}Z"


def measure() -> Section:
    """Compare by each engine on the same files; SIZES="20000 100000" chooses other sizes."""
    return compared([int(size) for size in os.environ.get("SIZES", "").split()] or _SIZES)


def compared(sizes: list[int] | tuple[int, ...]) -> Section:
    rows, ran = [], dict[tuple[str, int], _Ran]()
    for size in sizes:
        engines = ("spark", "sail") if size < _LARGE else ("spark",)
        for engine, found in _each(engines, size).items():
            ran[engine, size] = found
            rows.append((f"{size:,} objects, {engine}", found.summary()))
    met, big = None, sizes[-1]
    if big < _LARGE:
        with_data = _each(("spark", "sail"), big, _DATA)
        ratios = {engine: each.cpu_s / ran[engine, big].cpu_s for engine, each in with_data.items()}
        rows += [
            (
                f"{big:,} objects with data, {engine}",
                f"{each.summary()}; {ratios[engine]:.2f} times the CPU of lines without",
            )
            for engine, each in with_data.items()
        ]
    if len(sizes) == len(_SIZES):
        growth = ran["spark", big].seconds / ran["spark", sizes[0]].seconds
        rows.append((f"Spark's time of {big:,} to that of {sizes[0]:,}", f"{growth:.2f}"))
        if tuple(sizes) == _SIZES:
            peak_mb = max(ran["spark", big].peak_mb, with_data["spark"].peak_mb)
            small_enough = peak_mb < _RSS_MAX_MB and growth <= _GROWTH_MAX
            met = small_enough and ratios["spark"] <= _WITH_DATA_MAX
    return Section(
        "The comparison of a dump",
        f"Spark below {_RSS_MAX_MB / 1000:.1f} GB at 10,000,000 objects, at most {_GROWTH_MAX}"
        f" times the time of 2,000,000; lines with data at most {_WITH_DATA_MAX} times the CPU of"
        " lines without",
        rows,
        met,
        [
            "Peak memory and CPU of all processes, start included. Both check every line as ingest"
            " does and write the plan. The targets are Spark's: Sail is for dumps that fit into"
            " memory."
        ],
    )


@dataclass
class _Usage:
    """Peak resident memory of a process and its descendants, and their CPU seconds so far."""

    peak_mb: int = 0
    cpu_s: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ran:
    """The seconds of a comparison, and its count of corrections."""

    seconds: float
    count: int
    usage: _Usage

    @property
    def peak_mb(self) -> int:
        return self.usage.peak_mb

    @property
    def cpu_s(self) -> float:
        return sum(self.usage.cpu_s.values())

    def summary(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_s:.1f} CPU s, {self.peak_mb:,} MB"


def _each(engines: tuple[str, ...], size: int, data: str = "") -> dict[str, _Ran]:
    with tempfile.TemporaryDirectory(prefix="tidings-diff-") as name:
        _fill(Path(name), size, data)
        found = {engine: _run(engine, Path(name)) for engine in engines}
    counts = {each.count for each in found.values()}
    assert len(counts) == 1, f"they disagree: {counts}"
    return found


def _fill(folder: Path, size: int, data: str) -> None:
    """Write a dump and a state of which one in a hundred lines differs.

    A third each of these is new, newer in the dump, and deleted. *data* is JSON that each object
    has in addition.
    """
    data = f',"data":{data}' if data else ""
    with (folder / "dump").open("w") as dump, (folder / "state").open("w") as state:
        for number in range(size):
            kind = number % 300
            moment = _DAY.format(number % 28 + 1, number % 24, number % 60, number % 59)
            fields = f'"parents":["user/u{number % 1000}"],"type":"video","id":"x{number}"{data}'
            if kind != 2:
                dumped = moment.replace("2024", "2025") if kind == 1 else moment
                dump.write(f'{{"timestamp":"{dumped}",{fields}}}\n')
            if kind != 0:
                line = f'{{"event":"update","timestamp":"{moment}",{fields}}}'
                row = {"key": f"video/x{number}", "at": "0" * 15 + "1", "deleted": False}
                state.write(json.dumps(row | {"moment": moment[:-1], "line": line}) + "\n")


def _run(engine: str, folder: Path) -> _Ran:
    """Compare in a process of its own."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        child = context.Process(target=_child, args=(engine, folder, Path(work), answers))
        started = time.monotonic()
        child.start()
        assert child.pid is not None
        with _measure_usage(child.pid) as usage:
            count = answers.get()
            seconds = time.monotonic() - started
            child.join()
    assert count != _FAILED, engine
    return _Ran(seconds, count, usage)


def _child(engine: str, folder: Path, work: Path, answers: multiprocessing.Queue[int]) -> None:
    from pyspark.sql import DataFrame, SparkSession

    from tidings.sync import spark_session
    from tidings.sync.engine import ROWS
    from tidings.sync.job import Job, SyncOptions

    dump, count = folder / "dump", _FAILED

    class Shards:
        def table(self, spark: SparkSession) -> DataFrame:
            return spark.read.schema(ROWS).json(str(folder / "state"))

        def check(self) -> None: ...

    try:
        with spark_session.of_engine(engine, work, size=dump.stat().st_size) as spark:
            job = Job(spark, str(work), SyncOptions(), lambda name: None)
            count = job.make_plan([str(dump)], Shards(), through=1).corrections
    finally:
        answers.put(count)


@contextmanager
def _measure_usage(root: int) -> Iterator[_Usage]:
    usage, ended = _Usage(), threading.Event()

    def measure() -> None:
        while not ended.wait(_MEASURE_S):
            family = machine.family(root)
            usage.peak_mb = max(usage.peak_mb, sum(map(machine.resident, family)) // 2**20)
            usage.cpu_s |= {pid: used for pid in family if (used := machine.process_cpu_s(pid))}

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield usage
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    sys.stdout.write(compared([int(each) for each in sys.argv[1:]] or [_LARGE]).markdown())
