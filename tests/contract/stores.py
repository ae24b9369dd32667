"""The stores of a feed on each engine, to run the contracts on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, Protocol

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.faults import Answered, operation_of
from tests.fakes import (
    MemoryClaims,
    MemoryConnections,
    MemoryCounters,
    MemoryDueFeeds,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeyUsage,
    MemoryLog,
    MemoryOutbox,
    MemoryRecords,
    MemoryRegistry,
    MemoryRelays,
    MemoryRemovedParents,
    MemoryRewrites,
    MemoryState,
    MemoryStreams,
    MemorySubscriptions,
    MemorySums,
    MemoryTags,
)
from tests.fakes.runtime import runtime_of
from tidings.assembly.stores import Views
from tidings.aws import clients
from tidings.aws.config.deployment import TABLES, Table
from tidings.aws.dynamodb import outbox as messages
from tidings.aws.dynamodb.clusters import ClusterRecords
from tidings.aws.dynamodb.connections import (
    DynamoDBConnections,
    DynamoDBInbox,
    DynamoDBSubscriptions,
)
from tidings.aws.dynamodb.counters import DynamoDBCounters
from tidings.aws.dynamodb.due import DynamoDBDueFeeds
from tidings.aws.dynamodb.erasures import DynamoDBErasures, DynamoDBRewrites
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.keys import DynamoDBKeyUsage
from tidings.aws.dynamodb.log import DynamoDBClaims, DynamoDBLog, DynamoDBNumbers
from tidings.aws.dynamodb.outbox import DynamoDBOutbox
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.registry import DynamoDBRegistry
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.aws.dynamodb.removal import DynamoDBFeedData
from tidings.aws.dynamodb.state import DynamoDBRemovedParents, DynamoDBState, DynamoDBSums
from tidings.aws.dynamodb.tags import DynamoDBTags
from tidings.aws.effects import now_ms
from tidings.core.auth.quotas import KeyUsage
from tidings.core.changeagent.tag_index import TagStore
from tidings.core.consumers.consumer import ConsumerStore
from tidings.core.counters import Counters
from tidings.core.durable_streams.stream import StreamStore
from tidings.core.erasure.records import RewriteStore
from tidings.core.followers.leases import FollowerStore
from tidings.core.ingest.outbox import Outbox as OutboxPort
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.log.append import ClaimStore
from tidings.core.log.due import DueFeeds
from tidings.core.log.stores import LogStore
from tidings.core.maintenance import restore
from tidings.core.records import RecordStore
from tidings.core.replication.election import Coordinator
from tidings.core.replication.relay import RelayStore
from tidings.core.state.removed_parents import RemovedParentsStore
from tidings.core.state.rows import StateStore
from tidings.core.state.sums import SumStore
from tidings.core.triton.registration import Registry
from tidings.core.websocket.connections import ConnectionStore, Inbox, SubscriptionStore
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.due import SqliteDueFeeds
from tidings.server.sqlite.erasures import SqliteRewrites
from tidings.server.sqlite.log import (
    SqliteClaims,
    SqliteCounters,
    SqliteFollowers,
    SqliteLog,
    SqliteRelays,
    SqliteStreams,
)
from tidings.server.sqlite.records import SqliteRecords
from tidings.server.sqlite.removal import SqliteFeedData
from tidings.server.sqlite.state import SqliteRemovedParents, SqliteState, SqliteSums, SqliteTags

DYNAMODB_LOCAL = pytest.param("dynamodb-local", marks=pytest.mark.java)
ENGINES = ("memory", "sqlite", "moto", DYNAMODB_LOCAL)
LATER_MS = 4_102_444_800_000  # in 2100
_COLD_S = 30  # an engine that has just started may need longer than a function would wait


def on(*engines: object) -> pytest.MarkDecorator:
    """Try a test on these engines alone."""
    return pytest.mark.parametrize("stores", engines, indirect=True)


# A stage has no durable streams.
NOT_ON_A_STAGE = on("memory", "sqlite")
# Connections die with the process of a server, and its outboxes are tables: SQLite has neither.
NOT_ON_SQLITE = on("memory", "moto", DYNAMODB_LOCAL)


def unset(*samples: Any) -> list[str]:
    """Return the fields that no one of *samples* sets: a store could drop them unnoticed."""
    return [
        each.name
        for each in fields(samples[0])
        if all(getattr(sample, each.name) == each.default for sample in samples)
    ]


class Outbox(OutboxPort, Protocol):
    def leave(self, feed: str, message: OutboxMessage) -> None: ...


class OwnersOutbox(DynamoDBOutbox):
    """With what an owner's transaction does."""

    def leave(self, feed: str, message: OutboxMessage) -> None:
        self._table.put(messages.encode(feed, message))


@dataclass(frozen=True)
class Stores(Views):
    records: RecordStore
    log: LogStore
    state: StateStore
    removed_parents: RemovedParentsStore
    followers: FollowerStore
    claims: ClaimStore
    counters: Counters
    connections: ConnectionStore
    inbox: Inbox
    subscriptions: SubscriptionStore
    tags: TagStore
    registry: Registry
    outbox: Outbox
    relays: RelayStore
    clusters: Coordinator
    numbers: restore.Numbers
    key_usage: KeyUsage
    sums: SumStore
    streams: StreamStore
    rewrites: RewriteStore
    due: DueFeeds
    remove: Callable[[str], object]


def in_memory() -> Stores:
    due = MemoryDueFeeds()
    records = MemoryRecords(now_ms, due.mark)
    consumers = ConsumerStore(records)
    inbox, subscriptions, registry = MemoryInbox(), MemorySubscriptions(), MemoryRegistry()
    log, removed_parents = MemoryLog(due.mark), MemoryRemovedParents()
    return Stores(
        records,
        log,
        MemoryState(),
        removed_parents,
        MemoryFollowers(),
        MemoryClaims(),
        MemoryCounters(),
        MemoryConnections(inbox, subscriptions, registry),
        inbox,
        subscriptions,
        MemoryTags(),
        registry,
        MemoryOutbox(),
        MemoryRelays(log),
        Coordinator(records),
        log,
        MemoryKeyUsage(),
        MemorySums(),
        MemoryStreams(),
        MemoryRewrites(log, removed_parents, consumers),
        due,
        records.forget,
    )


class DynamoDBStores(Stores):
    records: DynamoDBRecords

    @cached_property
    def erasures(self) -> DynamoDBErasures:
        return DynamoDBErasures(self.records)


def on_dynamodb(client: DynamoDBClient) -> Stores:
    records = DynamoDBRecords(client, "control")
    consumers = ConsumerStore(records)
    return DynamoDBStores(
        records,
        DynamoDBLog(client, "log", "control"),
        DynamoDBState(client, "state"),
        DynamoDBRemovedParents(client, "state"),
        DynamoDBFollowers(client, "control"),
        DynamoDBClaims(client, "control"),
        DynamoDBCounters(lambda: client, "control"),
        DynamoDBConnections(client, "connections"),
        DynamoDBInbox(client, "connections"),
        DynamoDBSubscriptions(client, "connections"),
        DynamoDBTags(client, "state"),
        DynamoDBRegistry(client, "connections"),
        OwnersOutbox(client, "outbox"),
        DynamoDBRelays(client, "log", "control"),
        Coordinator(ClusterRecords(client, "control")),
        DynamoDBNumbers(client, "log", "control", lambda ms: None),
        DynamoDBKeyUsage(client, "control"),
        DynamoDBSums(client, "control"),
        MemoryStreams(),
        DynamoDBRewrites(client, "log", "state", consumers),
        DynamoDBDueFeeds(client, "control"),
        partial(_remove, client),
    )


def _remove(client: DynamoDBClient, feed: str) -> None:
    tables = ("log", "state", "control", "connections", "outbox")
    settings: Any = SimpleNamespace(**{f"{name}_table": name for name in tables})
    runtime = runtime_of(now_ms)
    data = DynamoDBFeedData(client, settings, lambda feed, id: None, lambda name: 0, runtime)
    place: str | None = ""
    while place is not None:
        place = data.remove(feed, place, 0).resume_at


@contextmanager
def on_sqlite(path: Path) -> Iterator[Stores]:
    """Yield stores on one file; what SQLite does not have is in memory."""
    database = Database(path)
    followers, records = SqliteFollowers(database), SqliteRecords(database)
    log, consumers = SqliteLog(database), ConsumerStore(records)
    yield replace(
        in_memory(),
        log=log,
        state=SqliteState(database),
        removed_parents=SqliteRemovedParents(database),
        followers=followers,
        claims=SqliteClaims(database),
        counters=SqliteCounters(database),
        tags=SqliteTags(database),
        relays=SqliteRelays(database, log),
        clusters=Coordinator(records),
        numbers=log,
        sums=SqliteSums(database),
        streams=SqliteStreams(database),
        rewrites=SqliteRewrites(database, consumers),
        due=SqliteDueFeeds(database),
        records=records,
        remove=lambda feed: SqliteFeedData(database, followers, now_ms).remove(feed, "", LATER_MS),
    )
    database.close()


_WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")


class Conflicts:
    """Refuse each write once, as if a transaction held its item, which no emulator does."""

    def __init__(self) -> None:
        self._refused = set[tuple[str, Any]]()

    def __call__(self, request: AWSPreparedRequest, process: Callable[[], Any]) -> Any:
        name = operation_of(request)
        if name not in _WRITES or (name, request.body) in self._refused:
            return process()
        self._refused.add((name, request.body))
        return conflict(name)


def conflict(operation: str) -> tuple[int, dict[str, str], bytes]:
    """Return the status, headers and body of DynamoDB's answer if a transaction holds the item."""
    told: dict[str, Any] = {"__type": "#TransactionConflictException", "message": "is ongoing"}
    if operation == "TransactWriteItems":
        reasons = [{"Code": "None"}, {"Code": "TransactionConflict"}]
        told = {"__type": "#TransactionCanceledException", "CancellationReasons": reasons}
    return 400, {"content-type": "application/x-amz-json-1.0"}, json.dumps(told).encode()


@contextmanager
def emulated(answered: Answered = lambda _, process: process()) -> Iterator[None]:
    """AWS in this process, asked by one thread at a time: tables of moto lose rows to a race.

    *answered* may answer a request in place of the emulator, before or after it is executed.
    """
    lock, process = Lock(), BotocoreStubber.process_request

    def in_turn(stubber: BotocoreStubber, request: AWSPreparedRequest) -> Any:
        with lock:
            return answered(request, lambda: process(stubber, request))

    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "CONFLICT_WAIT_S", 0)
        patch.setattr(BotocoreStubber, "process_request", in_turn)
        yield


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set the environment of an account, and *variables*."""
    account = {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # sessions keep their first credentials
        clients.session.cache_clear()
        for name, value in {**account, **variables}.items():
            patch.setenv(name, value)
        yield


@cache
def _patient() -> DynamoDBClient:
    """Return a client that makes tables; the one without an address is for all tests with moto."""
    return boto3.client("dynamodb", config=Config(read_timeout=_COLD_S))


@contextmanager
def client_in(variables: dict[str, str]) -> Iterator[DynamoDBClient]:
    """Yield the client of a function in this environment, with the tables of the blueprint."""
    with environment(variables):
        patient = _patient.__wrapped__() if variables else _patient()
        for table in TABLES:
            create(patient, table)
        yield clients.dynamodb.__wrapped__()


def create(client: DynamoDBClient, table: Table) -> None:
    sort_key, sort_type = table.sort_key
    options: dict[str, Any] = {}
    if table.stream:
        view = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
        options["StreamSpecification"] = view
    client.create_table(
        TableName=table.name,
        KeySchema=[
            {"AttributeName": table.partition_key, "KeyType": "HASH"},
            {"AttributeName": sort_key, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": table.partition_key, "AttributeType": "S"},
            {"AttributeName": sort_key, "AttributeType": "N" if sort_type == "N" else "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
        **options,
    )
    client.update_time_to_live(
        TableName=table.name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": table.ttl_attribute},
    )
