"""How fast a log comes out of the reader, and how much memory that takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidings.aws.dynamodb.items import page as page_item
from tidings.aws.runtime.clock import now_ms
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.twin.store import tables

from bench import engine
from bench.sections import Section, rate
from bench.workload import operations

_ROOT = Path(__file__).parent.parent
_BATCHED = "batched"
_ALONE = "alone"
_PUT_AT_ONCE = 25  # BatchWriteItem
_MEMORY_BYTES = 64 * 1024 * 1024


def fill(running: engine.Engine, feed: str, count: int, batch: int) -> None:
    """Pages as `append` writes them, put in bulk because a million puts one by one take long."""
    lines = [line_from(raw, now_ms=now_ms()) for raw in operations(count)]
    items = [
        page_item.encode(
            feed, Page(number, encode(lines[at : at + batch]), "a" * 32, now_ms(), now_ms() + 10**9)
        )
        for number, at in enumerate(range(0, count, batch), 1)
    ]

    def put(at: int) -> None:
        requests = [{"PutRequest": {"Item": item}} for item in items[at : at + _PUT_AT_ONCE]]
        answer = running.client.batch_write_item(RequestItems={tables.name_of("log"): requests})  # type: ignore[dict-item]
        assert not answer["UnprocessedItems"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(0, len(items), _PUT_AT_ONCE)))


def _read(url: str, feed: str, count: int) -> tuple[float, int]:
    """Seconds and peak resident bytes of a process that reads *count* operations of *feed*."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.replaying", url, feed, str(count)],
        cwd=_ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    found = json.loads(done.stdout)
    return found["seconds"], found["bytes"]


def measure(count: int = 1_000_000) -> Section:
    few = count // 10
    with engine.running() as running:
        started = time.perf_counter()
        fill(running, _BATCHED, count, 100)
        fill(running, _ALONE, count, 1)
        filled = time.perf_counter() - started
        _, small = _read(running.url, _BATCHED, few)
        batched, large = _read(running.url, _BATCHED, count)
        _, small_alone = _read(running.url, _ALONE, few)
        alone, large_alone = _read(running.url, _ALONE, count)
    grown = max(large - small, large_alone - small_alone)
    return Section(
        f"Replay of {count:,} operations",
        "at least 150,000 a second in batches of 100, 20,000 posted alone; memory within 64 MB of "
        f"a replay of {few:,}",
        [
            ("written in batches of 100", rate(count, batched)),
            ("each posted alone", rate(count, alone)),
            ("peak memory, batches", f"{small >> 20} MB, then {large >> 20} MB"),
            ("peak memory, alone", f"{small_alone >> 20} MB, then {large_alone >> 20} MB"),
        ],
        met=count / batched >= 150_000 and count / alone >= 20_000 and grown <= _MEMORY_BYTES,
        notes=[
            "Core and adapter in one process beside DynamoDB Local; the log was filled in "
            f"{filled:.0f} s."
        ],
    )
