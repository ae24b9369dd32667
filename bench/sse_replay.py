"""How fast a log comes out of the twin's event stream, over HTTP, and what that takes."""

from __future__ import annotations

import time

from tidings.core.model.cursors import START
from tidings.twin.running import Twin

from bench import engine, sse_reader, stream_process
from bench.replay import fill
from bench.sections import Section, rate

_FEED = "main"
_BATCH = 100
_TARGET = 150_000
_MEMORY_BYTES = 64 * 1024 * 1024


def measure(count: int = 1_000_000) -> Section:
    few = count // 10
    with engine.running() as running:
        started = time.perf_counter()
        fill(running, _FEED, count, _BATCH)
        filled = time.perf_counter() - started
        engine.forget_changes(running)
        with Twin("--endpoint-url", running.url) as twin:
            sse_reader.count(twin.url, START.encode(), few // 10)  # warm
            sse_reader.count(twin.url, START.encode(), few)
            process = stream_process.find(twin.pid)
            small = stream_process.peak_bytes(process)
            heard = sse_reader.count(twin.url, START.encode(), count)
            large = stream_process.peak_bytes(process)
    return Section(
        f"Replay of {count:,} operations over SSE",
        f"at least {_TARGET:,} a second in batches of {_BATCH}; memory of the stream's process "
        f"within 64 MB of a replay of {few:,}",
        [
            ("unfiltered, through the twin's gateway", rate(count, heard.seconds)),
            ("text", f"{heard.bytes / heard.seconds / 1e6:.0f} MB a second"),
            ("first block", f"{heard.first_s * 1000:.0f} ms"),
            ("peak memory", f"{small >> 20} MB, then {large >> 20} MB"),
        ],
        met=count / heard.seconds >= _TARGET and large - small <= _MEMORY_BYTES,
        notes=[
            "Engine, stream function, gateway and consumer on two cores; the log was filled in "
            f"{filled:.0f} s."
        ],
    )
