"""DynamoDB Local with the feed's tables, and the adapters on it."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from tidings.aws.config import deployment, twin_keys
from tidings.aws.dynamodb.claims import DynamoDBClaims
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.state import DynamoDBState
from tidings.aws.dynamodb.sums import DynamoDBSums
from tidings.aws.dynamodb.tombstones import DynamoDBTombstones
from tidings.aws.dynamodb.transport import raw_query
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.core.catchup.catchup import CatchUp
from tidings.core.followers.names import STATE
from tidings.core.log.append import Appender
from tidings.core.log.reader import Reader
from tidings.core.state.projector import Projector
from tidings.core.state.removed_parents_reader import RemovedParentsReader
from tidings.core.state.sum_keeper import SumKeeper
from tidings.twin.store import dynamodb_local, tables

from tests.fakes import MemoryProfiles, MemoryRemovedParents, MemoryWaker

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import StreamSpecificationTypeDef
    from tidings.core.followers.leases import Lease

PAGE_MS = 7 * 24 * 3600 * 1000


def client(url: str) -> DynamoDBClient:
    config = Config(parameter_validation=False, max_pool_connections=16)
    shown = twin_keys.credentials(url)
    made = boto3.client("dynamodb", endpoint_url=url, config=config, **shown)
    raw_query.read_items_raw(made)
    return made


@dataclass(frozen=True, slots=True)
class Engine:
    """The adapters as the functions have them, on one endpoint."""

    url: str
    client: DynamoDBClient
    log: DynamoDBLog
    state: DynamoDBState
    followers: DynamoDBFollowers
    appender: Appender

    @property
    def tombstones(self) -> DynamoDBTombstones:
        return DynamoDBTombstones(self.client, tables.name_of("control"))

    @property
    def reader(self) -> Reader:
        return Reader(self.log, self.log, self.followers, now_ms, lambda *_: None)

    @property
    def catch_up(self) -> CatchUp:
        kept = RemovedParentsReader(MemoryRemovedParents(), self.followers)
        return CatchUp(self.reader, self.state, self.tombstones, kept)

    @property
    def projector(self) -> Projector:
        unset = MemoryRemovedParents(), MemoryProfiles(), MemoryWaker()
        sums = SumKeeper(DynamoDBSums(self.client, tables.name_of("control")), self.state)
        return Projector(self.state, *unset, now_ms, self.tombstones, sums, PAGE_MS, PAGE_MS)

    def leading(self, feed: str) -> tuple[Projector, Lease]:
        """A projector that has begun under the lease of *feed*, so that it may be given pages."""
        lease = self.followers.take(feed, STATE, owner="bench", now_ms=now_ms())
        assert lease is not None
        projector = self.projector
        projector.begin(lease)
        return projector, lease


def adapters(url: str) -> Engine:
    made = client(url)
    control = tables.name_of("control")
    log = DynamoDBLog(made, tables.name_of("log"), control)
    claims = DynamoDBClaims(made, control)
    return Engine(
        url,
        made,
        log,
        DynamoDBState(made, tables.name_of("state"), sleep_ms),
        DynamoDBFollowers(made, control),
        Appender(log, claims, now_ms, lambda: uuid.uuid4().hex, PAGE_MS),
    )


@contextmanager
def running() -> Iterator[Engine]:
    """An engine in memory with empty tables."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile() as log:
        starting = dynamodb_local.start(port=0, data=None, log=Path(log.name))
        database = asyncio.run_coroutine_threadsafe(starting, loop).result()
        try:
            engine = adapters(database.url)
            tables.create(engine.client)
            yield engine
        finally:
            asyncio.run_coroutine_threadsafe(database.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)


def forget_changes(running: Engine) -> None:
    """Give each table a new stream, so that a twin started now does not follow what was filled."""
    for table in deployment.TABLES:
        if table.stream:
            _stream(running, table.name, {"StreamEnabled": False})
            _stream(running, table.name, {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})


def end_stream(running: Engine, table: str) -> None:
    """Nobody follows what is filled, and without a stream it is filled twice as fast."""
    _stream(running, table, {"StreamEnabled": False})


def _stream(running: Engine, table: str, wanted: StreamSpecificationTypeDef) -> None:
    running.client.update_table(TableName=tables.name_of(table), StreamSpecification=wanted)
