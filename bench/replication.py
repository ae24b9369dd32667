"""How fast the full state comes out of the twin's event stream, beside what the engine gives."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tidings.aws.runtime.clock import now_ms
from tidings.core import limits
from tidings.core.model.operations import line_from
from tidings.core.state.rows import Row
from tidings.twin.running import Twin

from bench import engine, sse_reader, stream_process
from bench.sections import Section, rate
from bench.workload import operations

_FEED = "main"
_TARGET = 70_000
_MEMORY_BYTES = 64 * 1024 * 1024
_FILLERS = 2  # threads; the engine writes no faster with more
_FILL_ROWS = 5_000
_RAW_THREADS = (1, 2, 4)


def fill_rows(running: engine.Engine, feed: str, count: int) -> None:
    """Objects as the state follower leaves them, all of them living."""
    at_ms = now_ms()
    rows = [
        Row(f"video/{raw['id']}", 1, slot, at_ms, line_from(raw, now_ms=at_ms))
        for slot, raw in enumerate(operations(count))
        if raw.update(event="update") is None
    ]
    with ThreadPoolExecutor(_FILLERS) as pool:
        batches = [rows[at : at + _FILL_ROWS] for at in range(0, count, _FILL_ROWS)]
        list(pool.map(lambda batch: running.state.write(feed, batch), batches))


def raw_rate(running: engine.Engine, feed: str, threads: int) -> float:
    """Rows a second that queries alone give, so many at a time, read as a copy reads them."""

    def read(bucket: int) -> int:
        count, after = 0, None
        while True:
            found = running.state.lines(feed, bucket, after)
            count, after = count + len(found.lines), found.after
            if after is None:
                return count

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        count = sum(pool.map(read, range(limits.BUCKETS)))
    return count / (time.perf_counter() - started)


def measure(count: int = 1_000_000) -> Section:
    few = count // 10
    with engine.running() as running:
        started = time.perf_counter()
        fill_rows(running, _FEED, few)
        small, few_s = _copy(running, few)
        fill_rows(running, _FEED, count)
        filled = time.perf_counter() - started
        large, seconds = _copy(running, count)
        raw_rate(running, _FEED, 1)  # warm
        raw = {threads: raw_rate(running, _FEED, threads) for threads in _RAW_THREADS}
    return Section(
        f"Full replication of {count:,} objects over SSE",
        f"at least {_TARGET:,} rows a second; memory of the stream's process within 64 MB of "
        f"{few:,} objects",
        [
            (f"{few:,} objects, through the twin's gateway", rate(few, few_s)),
            (f"{count:,} objects", rate(count, seconds)),
            ("peak memory", f"{small >> 20} MB, then {large >> 20} MB"),
            *((f"queries alone, {threads} at a time", rate(raw[threads], 1)) for threads in raw),
        ],
        met=count / seconds >= _TARGET and large - small <= _MEMORY_BYTES,
        notes=[f"Unfiltered, `reset` to `live`; the state was filled in {filled:.0f} s."],
    )


def _copy(running: engine.Engine, count: int) -> tuple[int, float]:
    """Peak memory of a stream process that copies *count* objects, and how long that takes."""
    engine.forget_changes(running)
    with Twin("--endpoint-url", running.url) as twin:
        sse_reader.count(twin.url, "0", count // 20)  # warm
        heard = sse_reader.count(twin.url, "0", count + 2)
        return stream_process.peak_bytes(stream_process.find(twin.pid)), heard.seconds
