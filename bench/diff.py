"""The comparison of a dump with a state of the same size, beside a dictionary and DuckDB."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.sections import Section

SIZES = (2_000_000, 10_000_000)
LARGE = 100_000_000  # alone, by `make bench-large`: neither of the others could hold it
RSS_MAX_MB = 2_500
GROWTH_MAX = 5.5  # of the time, from 2 to 10 million
_MEASURE_S = 0.2
FAILED = -1
_DAY = "2024-01-{:02}T{:02}:{:02}:{:02}Z"
Way = Callable[[Path, Path, Path], int]


def measure() -> Section:
    """Each way in a process of its own, on the same files; SIZES="20000 100000" names others."""
    return compared([int(size) for size in os.environ.get("SIZES", "").split()] or SIZES)


def compared(sizes: list[int] | tuple[int, ...]) -> Section:
    rows, took, peaks = [], {}, {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="tidings-diff-") as name:
            _fill(Path(name), size)
            found = set()
            for way in (by_spark, by_dictionary, by_duckdb) if size < LARGE else (by_spark,):
                seconds, peak_mb, count = _run(way, Path(name))
                took[way, size], peaks[way, size] = seconds, peak_mb
                found.add(count)
                label = way.__name__.removeprefix("by_")
                rows.append((f"{size:,} objects, {label}", f"{seconds:.1f} s, {peak_mb:,} MB"))
            assert len(found) == 1, f"they disagree: {found}"
    met = None
    if len(sizes) == len(SIZES):
        small, big = sizes
        growth = took[by_spark, big] / took[by_spark, small]
        rows.append((f"Spark's time of {big:,} to that of {small:,}", f"{growth:.2f}"))
        if tuple(sizes) == SIZES:
            quick = took[by_spark, big] <= took[by_dictionary, big]
            met = quick and peaks[by_spark, big] < RSS_MAX_MB and growth <= GROWTH_MAX
    return Section(
        "The comparison of a dump",
        "Spark no slower than a dictionary in one process and below 2.5 GB at 10,000,000 objects,"
        f" at most {GROWTH_MAX} times the time of 2,000,000",
        rows,
        met,
        [
            "Peak memory of all processes. Spark checks every line as ingest does and writes the"
            " plan; the other two trust the dump. Starting Spark is in its time."
        ],
    )


def by_spark(dump: Path, state: Path, work: Path) -> int:
    from pyspark.sql import DataFrame, SparkSession
    from tidings.sync import schemas, spark_session
    from tidings.sync.job import Job, Wishes

    class Shards:
        def table(self, spark: SparkSession) -> DataFrame:
            return spark.read.schema(schemas.ROWS).json(str(state))

        def check(self) -> None: ...

    with spark_session.local(work, size=dump.stat().st_size) as spark:
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


def _run(way: Way, folder: Path) -> tuple[float, int, int]:
    """Seconds, peak memory in MB, corrections."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        child = context.Process(target=_child, args=(way, folder, Path(work), answers))
        started, peak, ended = time.monotonic(), [0], threading.Event()
        child.start()
        watcher = threading.Thread(target=_watch, args=(child.pid, peak, ended))
        watcher.start()
        count = answers.get()
        seconds = time.monotonic() - started
        child.join()
        ended.set()
        watcher.join()
    assert count != FAILED, way.__name__
    return seconds, peak[0], count


def _child(way: Way, folder: Path, work: Path, answers: multiprocessing.Queue[int]) -> None:
    count = FAILED
    try:
        count = way(folder / "dump", folder / "state", work)
    finally:
        answers.put(count)


def _watch(root: int, peak: list[int], ended: threading.Event) -> None:
    """The largest sum of resident memory of *root* and its descendants, in MB."""
    while not ended.wait(_MEASURE_S):
        peak[0] = max(peak[0], sum(map(_resident, _family(root))) // 2**20)


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


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    sys.stdout.write(compared([int(each) for each in sys.argv[1:]] or [LARGE]).markdown())
