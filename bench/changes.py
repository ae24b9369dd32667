"""What lists of changes cost: from the middle of a log, by a rare tag, and while many wait."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidings.aws.dynamodb.items import page as page_item
from tidings.aws.dynamodb.tags import DynamoDBTags
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.core.changeagent.changes import Change, line_of, number_of
from tidings.core.changeagent.list import Lister, Query
from tidings.core.changeagent.tag_indexer import Indexer
from tidings.core.model.pages import Page, encode
from tidings.twin.running import Twin
from tidings.twin.store import tables

from bench import engine, units
from bench.sections import Section, percentile
from bench.stream_process import find

_FEED = "main"
_RARE, _EVERY = "rare", 10_000
_TIMES, _WARM = 40, 10  # the engine compiles what it runs often
_PUT_AT_ONCE = 25  # BatchWriteItem
_KB_OF_A_READ = 4
_SETTLE_S, _IDLE_S = 4.0, 8.0  # with what follows within the 25 s that a client waits
_STARTS_A_S = 60  # clients that have been told once, on a busy machine
_TICK = os.sysconf("SC_CLK_TCK")


def _pages(count: int, batch: int) -> list[Page]:
    now = now_ms()
    lines = [
        line_of(
            Change(f'{{"seq":{at}}}', (_RARE if at % _EVERY == _EVERY // 2 else f"t{at % 97}",)),
            name=f"{at:032x}",
            now_ms=now,
        )
        for at in range(count)
    ]
    return [
        Page(number, encode(lines[at : at + batch]), "a" * 32, now, now + 10**9)
        for number, at in enumerate(range(0, count, batch), 1)
    ]


def _fill(running: engine.Engine, pages: list[Page]) -> int:
    """Put *pages*; the bytes they hold."""
    for at in range(0, len(pages), _PUT_AT_ONCE):
        requests = [
            {"PutRequest": {"Item": page_item.encode(_FEED, page)}}
            for page in pages[at : at + _PUT_AT_ONCE]
        ]
        running.client.batch_write_item(RequestItems={tables.name_of("log"): requests})  # type: ignore[dict-item]
    lease = running.followers.take(_FEED, "state", owner="bench", now_ms=now_ms())
    assert lease is not None
    running.followers.release(replace(lease, checkpoint=pages[-1].number))
    return sum(len(page.body) for page in pages)


def _costs(asks: Sequence[Callable[[], object]], used: Counter[str]) -> list[tuple[float, float]]:
    """Read units and median milliseconds of each of *asks*, in turns: the machine's speed moves."""
    counted = [0.0 for _ in asks]
    times: list[list[float]] = [[] for _ in asks]
    for turn in range(_WARM + _TIMES):
        for at, ask in enumerate(asks):
            used.clear()
            started = time.perf_counter()
            ask()
            if turn >= _WARM:
                times[at].append((time.perf_counter() - started) * 1000)
                counted[at] += sum(used.values())
    return [
        (units / _TIMES, statistics.median(each))
        for units, each in zip(counted, times, strict=True)
    ]


def measure(count: int = 1_000_000, batch: int = 10) -> Section:
    """*batch* changes a request: a million of one would take an hour to fill."""
    with engine.running() as running:
        engine.end_stream(running, "log")
        pages = _pages(count, batch)
        size = _fill(running, pages)
        written = units.counting(running.client)
        store = DynamoDBTags(running.client, tables.name_of("state"), sleep_ms)
        indexer = Indexer(store, running.reader, engine.PAGE_MS)
        while store.last(_FEED) != indexer.run(_FEED):
            pass
        index_units = sum(written.values()) / count
        used = units.counting(running.client, units.READS)

        def listed(query: Query) -> list[str]:
            lister = Lister(running.reader, store)
            return lister.list(_FEED, query).entries

        places = Query(since=number_of(1, 0)), Query(since=number_of(len(pages) // 2, 0))
        start, middle = _costs([partial(listed, place) for place in places], used)
        wanted = Query(tags=frozenset({_RARE}))
        (rare,) = _costs([partial(listed, wanted)], used)
        found = len(listed(wanted))
    whole = size / 1024 / _KB_OF_A_READ
    even = all(abs(b - a) <= 0.1 * a for a, b in zip(start, middle, strict=True))
    return Section(
        f"Lists of {count:,} changes",
        "a hundred from the middle within 10 % of the start; a tag of 1 in 10,000 without "
        "reading the log",
        [
            ("behind the first change", f"{start[0]:.1f} read units, {start[1]:.1f} ms"),
            ("behind the middle one", f"{middle[0]:.1f} read units, {middle[1]:.1f} ms"),
            (
                f"first page of a rare tag, {found} found",
                f"{rare[0]:,.0f} units, {rare[1]:,.0f} ms",
            ),
            ("the whole log, if it were read", f"{whole:,.0f} units at least"),
            ("index, write units an entry", f"{index_units:.4f}"),
        ],
        met=even and rare[0] < whole / 2,
        notes=[f"Pages of {batch}; units are ConsumedCapacity of DynamoDB Local, times medians."],
    )


async def _wait(port: int, arrived: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /changes?since=1024&block=25 HTTP/1.1\r\nhost: feed\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    await reader.readuntil(b'"next"')
    arrived.append(time.perf_counter())
    writer.close()


def _post(url: str) -> None:
    request = urllib.request.Request(
        f"{url}changes", b'{"data":1}', {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["_id"]


def _cpu_s(*pids: int) -> float:
    """User and system seconds of processes so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICK


async def _waits(twin: Twin, clients: int) -> tuple[list[float], float]:
    """Seconds from the change to each answer, and the share of a core while all waited."""
    arrived: list[float] = []
    waiting = [asyncio.ensure_future(_wait(twin.port, arrived)) for _ in range(clients)]
    await asyncio.sleep(_SETTLE_S + clients / _STARTS_A_S)
    pids = (twin.pid, find(twin.pid, "list"))
    before = _cpu_s(*pids)
    await asyncio.sleep(_IDLE_S)
    idle = (_cpu_s(*pids) - before) / _IDLE_S
    assert not arrived
    posted = time.perf_counter()
    await asyncio.to_thread(_post, twin.url)
    await asyncio.gather(*waiting)
    return [each - posted for each in arrived], idle


def measure_waiting(clients: int = 500) -> Section:
    with Twin() as twin:
        _post(twin.url)
        times, idle = asyncio.run(_waits(twin, clients))
    return Section(
        f"{clients} clients that wait for changes",
        "each answered within 1 s of the change; less than 20 % of a core while they wait",
        [
            ("median", f"{percentile(times, 0.5) * 1000:.0f} ms"),
            ("slowest", f"{max(times) * 1000:.0f} ms"),
            ("CPU while idle, gateway and streaming function", f"{idle:.1%} of a core"),
        ],
        met=max(times) <= 1 and idle < 0.2,
        notes=["From before the POST is sent; the twin on the same machine as its clients."],
    )
