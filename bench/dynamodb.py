"""Measure the log and the state on DynamoDB Local: write units, replay speed and memory.

`python -m bench.dynamodb URL FEED COUNT` reads a feed and prints how long that took; the replay
benchmark runs it in a process of its own to measure its memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from bench.results import Section, rate
from bench.workload import operations
from tests.fakes import MemoryProfiles, MemoryRemovedParents, MemoryWaker
from tests.twin import dynamodb_local, store
from tidings.aws import clients
from tidings.aws.config.stages import LOCAL_CREDENTIALS
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBClaims, DynamoDBLog, encode_page
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.state import DynamoDBState, DynamoDBSums
from tidings.aws.effects import new_runtime, now_ms, sleep_ms
from tidings.core.catchup.catchup import CatchUp, Progress
from tidings.core.log.append import Appender
from tidings.core.log.reader import Reader
from tidings.core.model.feeds import STATE
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.settings.profiles import Losses
from tidings.core.state.projector import Projector, RemovedParentsWriter, SumKeeper
from tidings.core.state.removed_parents import RemovedParentsReader
from tidings.core.state.tombstones import TombstoneStore

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

WRITES = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems")
READS = ("Query", "Scan", "GetItem", "BatchGetItem")
_PAGE_MS = 7 * 24 * 3600 * 1000
_LIFETIMES: Any = SimpleNamespace(page_ms=_PAGE_MS, tombstone_ms=_PAGE_MS)
_RUNTIME = new_runtime(_LIFETIMES)
_BATCHES, _BATCH = 50, 100
_PUT_AT_ONCE = 25  # the limit of BatchWriteItem
_MEMORY_BYTES = 64 * 1024 * 1024
_ROOT = Path(__file__).parent.parent


def client(url: str) -> DynamoDBClient:
    config = Config(parameter_validation=False, max_pool_connections=16)
    made = boto3.client("dynamodb", endpoint_url=url, config=config, **LOCAL_CREDENTIALS)
    clients.read_items_raw(made)
    return made


@dataclass(frozen=True, slots=True)
class Engine:
    """The adapters of the functions on one endpoint."""

    url: str
    client: DynamoDBClient
    log: DynamoDBLog
    state: DynamoDBState
    followers: DynamoDBFollowers
    appender: Appender

    @classmethod
    def at(cls, url: str) -> Engine:
        made, control = client(url), store.table_name("control")
        log = DynamoDBLog(made, store.table_name("log"), control)
        return cls(
            url,
            made,
            log,
            DynamoDBState(made, store.table_name("state"), sleep_ms),
            DynamoDBFollowers(made, control),
            Appender(log=log, claims=DynamoDBClaims(made, control), runtime=_RUNTIME),
        )

    @property
    def reader(self) -> Reader:
        return Reader(log=self.log, checkpoints=self.followers, clock=now_ms, count=lambda *_: None)

    @property
    def tombstones(self) -> TombstoneStore:
        return TombstoneStore(DynamoDBRecords(self.client, store.table_name("control")))

    @property
    def catch_up(self) -> CatchUp:
        return CatchUp(
            reader=self.reader,
            states=self.state,
            tombstones=self.tombstones,
            removed_parents_reader=RemovedParentsReader(MemoryRemovedParents(), self.followers),
            losses=Losses(MemoryProfiles()),
        )

    def projector(self, feed: str) -> Projector:
        """Return a projector that holds the lease of *feed*, ready to be given pages."""
        sums = SumKeeper(DynamoDBSums(self.client, store.table_name("control")), self.state)
        parents = RemovedParentsWriter(
            MemoryRemovedParents(), MemoryProfiles(), MemoryWaker(), self.tombstones, _RUNTIME
        )
        made = Projector(
            states=self.state,
            parents=parents,
            tombstones=self.tombstones,
            sums=sums,
            runtime=_RUNTIME,
        )
        lease = self.followers.take(feed, STATE, owner="bench", now_ms=now_ms())
        assert lease is not None
        made.begin(lease)
        return made


@contextmanager
def running() -> Iterator[Engine]:
    """Start DynamoDB Local in memory with empty tables."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile() as log:
        starting = dynamodb_local.start(port=0, data=None, log=Path(log.name))
        database = asyncio.run_coroutine_threadsafe(starting, loop).result()
        try:
            engine = Engine.at(database.url)
            store.create_tables(engine.client)
            yield engine
        finally:
            asyncio.run_coroutine_threadsafe(database.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)


def counting(client: Any, calls: Sequence[str] = WRITES) -> Counter[str]:
    """Count units by table from the ConsumedCapacity of each of *calls* of *client*."""
    units: Counter[str] = Counter()

    def ask(params: dict[str, Any], **_: object) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def note(parsed: dict[str, Any], **_: object) -> None:
        found = parsed.get("ConsumedCapacity", [])
        for used in found if isinstance(found, list) else [found]:
            units[used["TableName"]] += used["CapacityUnits"]

    for call in calls:
        client.meta.events.register(f"provide-client-params.dynamodb.{call}", ask)
        client.meta.events.register(f"after-call.dynamodb.{call}", note)
    return units


def measure_units() -> Section:
    """Measure the write units that an operation costs."""
    feed = "main"
    with running() as engine:
        units = counting(engine.client)
        lines = [line_from(raw, now_ms=now_ms()) for raw in operations(_BATCHES * _BATCH)]
        for at in range(0, len(lines), _BATCH):
            engine.appender.append(feed, lines[at : at + _BATCH])
        log_units = sum(units.values()) / len(lines)
        pages = engine.reader.read(feed, 0).pages
        projector = engine.projector(feed)
        units.clear()
        for page in pages:
            projector.handle(feed, [page])
        read = sum(len(page.lines) for page in pages)
        state_units = units[store.table_name("state")] / read
        sum_units = units[store.table_name("control")] / read
    return Section(
        "Write units of an operation",
        f"batches of {_BATCH}: at most 0.06 for the log (counter and page), 1.0 for the state, "
        "3 % of that for its sums",
        [
            ("log, counter and page", f"{log_units:.3f}"),
            ("state, every object a different one", f"{state_units:.3f}"),
            ("the sums of the state", f"{sum_units:.3f}"),
        ],
        met=log_units <= 0.06 and state_units <= 1.0 and sum_units <= 0.03,
        notes=["ConsumedCapacity of DynamoDB Local, summed over every write."],
    )


def fill(engine: Engine, feed: str, count: int, batch: int) -> None:
    """Write pages as `append` does, but in bulk: a million single puts take too long."""
    lines = [line_from(raw, now_ms=now_ms()) for raw in operations(count)]
    items = [
        encode_page(
            feed, Page(number, encode(lines[at : at + batch]), "a" * 32, now_ms(), now_ms() + 10**9)
        )
        for number, at in enumerate(range(0, count, batch), 1)
    ]

    def put(at: int) -> None:
        requests = [{"PutRequest": {"Item": item}} for item in items[at : at + _PUT_AT_ONCE]]
        answer = engine.client.batch_write_item(RequestItems={store.table_name("log"): requests})  # type: ignore[dict-item]
        assert not answer["UnprocessedItems"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(0, len(items), _PUT_AT_ONCE)))


def measure_replay(count: int = 1_000_000) -> Section:
    """Measure how fast a log is read, and how much memory that takes."""
    few = count // 10
    with running() as engine:
        started = time.perf_counter()
        fill(engine, "batched", count, 100)
        fill(engine, "alone", count, 1)
        filled = time.perf_counter() - started
        _, small = _read(engine.url, "batched", few)
        batched, large = _read(engine.url, "batched", count)
        _, small_alone = _read(engine.url, "alone", few)
        alone, large_alone = _read(engine.url, "alone", count)
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
            "Core and adapter in one process next to DynamoDB Local; the log was filled in "
            f"{filled:.0f} s."
        ],
    )


def _read(url: str, feed: str, count: int) -> tuple[float, int]:
    """Return seconds and peak resident bytes of a process that reads *count* operations."""
    command = [sys.executable, "-m", "bench.dynamodb", url, feed, str(count)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True)
    found = json.loads(done.stdout)
    return found["seconds"], found["bytes"]


def main(url: str, feed: str, count: int) -> None:
    catch_up = Engine.at(url).catch_up
    progress, seen = Progress(0), 0
    started = time.perf_counter()
    while seen < count:
        step = catch_up.step(feed, progress, EVERYTHING)
        progress = step.progress
        seen += len(step.events)
    seconds = time.perf_counter() - started
    sys.stdout.write(json.dumps({"seconds": seconds * count / seen, "bytes": _peak_bytes()}))


def _peak_bytes() -> int:
    """Return the peak of this program alone; getrusage includes the parent's at the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
