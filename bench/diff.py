"""The comparison of a dump with a state of the same size, beside a dictionary and DuckDB."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from tidings.server.running import Server

from bench.sections import Section

SIZES = (2_000_000, 10_000_000)
LARGE = 100_000_000  # alone, by `make bench-large`: neither of the others could hold it
RSS_MAX_MB = 2_000
GROWTH_MAX = 5.5  # of the time, from 2 to 10 million
WITH_DATA_MAX = 1.3  # times the CPU of lines without
LAPTOP = 200_000
LAPTOP_CPU_S, FEW_S = 4.0, 3.0
_MEASURE_S = 0.1
FAILED = -1
_DATA = '{"title":"A title, as they are","views":12345,"tags":["a","b"],"o":{"x":1.5,"y":null}}'
_TICK = os.sysconf("SC_CLK_TCK")
_DAY = "2024-01-{:02}T{:02}:{:02}:{:02}Z"
Way = Callable[[Path, Path, Path], int]


def measure() -> Section:
    """Each way in a process of its own, on the same files; SIZES="20000 100000" names others."""
    return compared([int(size) for size in os.environ.get("SIZES", "").split()] or SIZES)


def compared(sizes: list[int] | tuple[int, ...]) -> Section:
    rows, took, cpu, peaks = [], {}, {}, {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="tidings-diff-") as name:
            _fill(Path(name), size)
            found = set()
            ways = (by_spark, by_sail, by_dictionary, by_duckdb) if size < LARGE else (by_spark,)
            for way in ways:
                ran = _run(way, Path(name))
                took[way, size], peaks[way, size] = ran.seconds, ran.peak_mb
                cpu[way, size] = ran.cpu_s
                found.add(ran.count)
                rows.append((f"{size:,} objects, {_label(way)}", ran.told()))
            assert len(found) == 1, f"they disagree: {found}"
    ratios = {}
    if (size := sizes[-1]) < LARGE:
        with tempfile.TemporaryDirectory(prefix="tidings-diff-") as name:
            _fill(Path(name), size, _DATA)
            for way in (by_spark, by_sail):
                ran = _run(way, Path(name))
                ratios[way] = ran.cpu_s / cpu[way, size]
                peaks[way, size] = max(peaks[way, size], ran.peak_mb)
                told = f"{ran.told()}; {ratios[way]:.2f} times the CPU of lines without"
                rows.append((f"{size:,} objects with data, {_label(way)}", told))
    met = None
    if len(sizes) == len(SIZES):
        small, big = sizes
        growth = took[by_spark, big] / took[by_spark, small]
        rows.append((f"Spark's time of {big:,} to that of {small:,}", f"{growth:.2f}"))
        if tuple(sizes) == SIZES:
            quick = took[by_spark, big] <= took[by_dictionary, big]
            small_enough = peaks[by_spark, big] < RSS_MAX_MB and growth <= GROWTH_MAX
            met = quick and small_enough and ratios[by_spark] <= WITH_DATA_MAX
    return Section(
        "The comparison of a dump",
        "Spark no slower than a dictionary in one process and below 2.0 GB at 10,000,000 objects,"
        f" at most {GROWTH_MAX} times the time of 2,000,000; lines with data at most"
        f" {WITH_DATA_MAX} times the CPU of lines without",
        rows,
        met,
        [
            "Peak memory and CPU of all processes. Spark and Sail check every line as ingest does"
            " and write the plan; the other two trust the dump. Their start is in their time. The"
            " targets are Spark's: Sail is for what fits into memory."
        ],
    )


def measure_laptop() -> Section:
    """`tidings sync --dry-run` of a server's feed, over HTTP, twice: the second one is told."""
    rows, least = [], {}
    with Server() as server, tempfile.TemporaryDirectory(prefix="tidings-diff-") as name:
        folder = Path(name)
        _fill(folder, LAPTOP)
        few = folder / "few"
        with (folder / "dump").open() as lines:
            few.write_text("".join(islice(lines, 3)))
        sync = partial(_synced, server.url)
        sync("sail", few, "--dry-run")
        least["few"] = sync("sail", few, "--dry-run")
        rows.append(("3 lines, no rows, sail", least["few"].told()))
        rows.append(("3 lines, no rows, spark", sync("spark", few, "--dry-run").told()))
        sync("sail", folder / "dump")
        for engine in ("sail", "spark"):
            least[engine] = sync(engine, folder / "dump", "--dry-run")
            rows.append((f"{LAPTOP:,} lines, as many rows, {engine}", least[engine].told()))
    return Section(
        "A sync on a laptop",
        f"{LAPTOP:,} lines against as many rows in {LAPTOP_CPU_S:.0f} CPU seconds, three lines in"
        f" {FEW_S:.0f} s",
        rows,
        least["sail"].cpu_s <= LAPTOP_CPU_S and least["few"].seconds <= FEW_S,
        ["Of the command and what it starts, from its start to its end."],
    )


def _synced(url: str, engine: str, dump: Path, *options: str) -> Ran:
    command = [sys.executable, "-m", "tidings.client.cli.main", "sync", str(dump), "--url", url]
    started = time.monotonic()
    with (
        subprocess.Popen(
            [*command, "--engine", engine, "--json", *options], stdout=subprocess.PIPE
        ) as child,
        _watching(child.pid) as watched,
    ):
        summary = json.loads(child.communicate()[0])
    count = summary["creates"] + summary["updates"] + summary["deletes"]
    return Ran(time.monotonic() - started, count, watched)


def _label(way: Way) -> str:
    return way.__name__.removeprefix("by_")


def by_spark(dump: Path, state: Path, work: Path) -> int:
    return _by_engine("spark", dump, state, work)


def by_sail(dump: Path, state: Path, work: Path) -> int:
    return _by_engine("sail", dump, state, work)


def _by_engine(engine: str, dump: Path, state: Path, work: Path) -> int:
    from pyspark.sql import DataFrame, SparkSession
    from tidings.sync import schemas
    from tidings.sync.engines import spark_session
    from tidings.sync.job import Job, Wishes

    class Shards:
        def table(self, spark: SparkSession) -> DataFrame:
            return spark.read.schema(schemas.ROWS).json(str(state))

        def check(self) -> None: ...

    with spark_session.of_engine(engine, work, size=dump.stat().st_size) as spark:
        job = Job(spark, str(work), Wishes(), lambda name: None)
        return job.make_plan([str(dump)], Shards(), through=1).corrections


def by_dictionary(dump: Path, state: Path, work: Path) -> int:
    dumped = {}
    with dump.open("rb") as lines:
        for line in lines:
            raw = json.loads(line)
            dumped[f"{raw['type']}/{raw['id']}"] = raw["timestamp"].removesuffix("Z"), line
    newest = max(moment for moment, _ in dumped.values())
    with (work / "plan").open("wb") as plan, state.open("rb") as rows:
        return sum(_corrections(dumped, rows, newest, plan.write))


def _corrections(
    dumped: dict[str, tuple[str, bytes]],
    rows: Iterator[bytes],
    newest: str,
    write: Callable[[bytes], int],
) -> Iterator[int]:
    """One for each, written."""
    for text in rows:
        row = json.loads(text)
        there = dumped.pop(row["key"], None)
        if (there is None and row["moment"] < newest) or (there and row["moment"] < there[0]):
            write(text if there is None else there[1])
            yield 1
    for _, line in dumped.values():
        write(line)
        yield 1


def by_duckdb(dump: Path, state: Path, work: Path) -> int:
    import duckdb

    told = "columns={type:'VARCHAR',id:'VARCHAR',timestamp:'VARCHAR',parents:'VARCHAR[]'}"
    known = "columns={key:'VARCHAR',moment:'VARCHAR',line:'VARCHAR'}"
    database = duckdb.connect(str(work / "duck"), config={"memory_limit": "2GB"})
    database.execute(
        f"""CREATE TABLE told AS SELECT type || '/' || id AS key, rtrim(timestamp, 'Z') AS moment,
            parents FROM read_json('{dump}', format='newline_delimited', {told})"""
    )
    database.execute(
        f"""COPY (SELECT * FROM told FULL JOIN
            read_json('{state}', format='newline_delimited', {known}) AS known USING (key)
            WHERE known.moment IS NULL OR told.moment > known.moment OR (told.moment IS NULL
            AND known.moment < (SELECT max(moment) FROM told))) TO '{work}/plan.json'"""
    )
    with (work / "plan.json").open("rb") as plan:
        return sum(1 for _ in plan)


def _fill(folder: Path, size: int, data: str = "") -> None:
    """
    One in a hundred differs: a third each is new, newer in the dump, and gone.

    *data* is what each object has besides, as JSON.
    """
    data = f',"data":{data}' if data else ""
    with (folder / "dump").open("w") as dump, (folder / "state").open("w") as state:
        for number in range(size):
            kind = number % 300
            moment = _DAY.format(number % 28 + 1, number % 24, number % 60, number % 59)
            fields = f'"parents":["user/u{number % 1000}"],"type":"video","id":"x{number}"{data}'
            if kind != 2:
                told = moment.replace("2024", "2025") if kind == 1 else moment
                dump.write(f'{{"timestamp":"{told}",{fields}}}\n')
            if kind != 0:
                line = f'{{"event":"update","timestamp":"{moment}",{fields}}}'
                row = {"key": f"video/x{number}", "at": "0" * 15 + "1", "deleted": False}
                state.write(json.dumps(row | {"moment": moment[:-1], "line": line}) + "\n")


@dataclass
class _Watched:
    """The most resident memory of a process and its descendants; of each the CPU ticks so far."""

    peak_mb: int = 0
    ticks: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    """*count*: of corrections."""

    seconds: float
    count: int
    watched: _Watched

    @property
    def peak_mb(self) -> int:
        return self.watched.peak_mb

    @property
    def cpu_s(self) -> float:
        return sum(self.watched.ticks.values()) / _TICK

    def told(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_s:.1f} CPU s, {self.peak_mb:,} MB"


def _run(way: Way, folder: Path) -> Ran:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        child = context.Process(target=_child, args=(way, folder, Path(work), answers))
        started = time.monotonic()
        child.start()
        assert child.pid is not None
        with _watching(child.pid) as watched:
            count = answers.get()
            seconds = time.monotonic() - started
            child.join()
    assert count != FAILED, way.__name__
    return Ran(seconds, count, watched)


def _child(way: Way, folder: Path, work: Path, answers: multiprocessing.Queue[int]) -> None:
    count = FAILED
    try:
        count = way(folder / "dump", folder / "state", work)
    finally:
        answers.put(count)


@contextmanager
def _watching(root: int) -> Iterator[_Watched]:
    watched, ended = _Watched(), threading.Event()

    def watch() -> None:
        while not ended.wait(_MEASURE_S):
            family = _family(root)
            watched.peak_mb = max(watched.peak_mb, sum(map(_resident, family)) // 2**20)
            watched.ticks |= {pid: ticks for pid in family if (ticks := _ticks(pid))}

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield watched
    finally:
        ended.set()
        watcher.join()


def _family(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    sys.stdout.write(compared([int(each) for each in sys.argv[1:]] or [LARGE]).markdown())
