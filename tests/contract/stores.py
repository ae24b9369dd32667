"""Everything a contract looks at, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol
from uuid import uuid4

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber
from mypy_boto3_dynamodb import DynamoDBClient
from tidings.aws import clients
from tidings.aws.blueprint import TABLES, Table
from tidings.aws.dynamodb_claims import DynamoDBClaims
from tidings.aws.dynamodb_clusters import DynamoDBClusters
from tidings.aws.dynamodb_connections import (
    DynamoDBConnections,
    DynamoDBInbox,
    DynamoDBWatches,
)
from tidings.aws.dynamodb_consumers import DynamoDBConsumers
from tidings.aws.dynamodb_departures import DynamoDBDepartures
from tidings.aws.dynamodb_followers import DynamoDBFollowers
from tidings.aws.dynamodb_keys import DynamoDBKeyCounts, DynamoDBKeyHolds, DynamoDBKeys
from tidings.aws.dynamodb_log import DynamoDBLog
from tidings.aws.dynamodb_numbers import DynamoDBNumbers
from tidings.aws.dynamodb_outbox import DynamoDBOutbox
from tidings.aws.dynamodb_profiles import DynamoDBProfiles
from tidings.aws.dynamodb_registry import DynamoDBRegistry
from tidings.aws.dynamodb_relays import DynamoDBRelays
from tidings.aws.dynamodb_renewals import DynamoDBRenewals
from tidings.aws.dynamodb_sheets import DynamoDBSheets
from tidings.aws.dynamodb_state import DynamoDBState
from tidings.aws.dynamodb_tags import DynamoDBTags
from tidings.aws.dynamodb_tallies import DynamoDBTallies
from tidings.aws.dynamodb_tombstones import DynamoDBTombstones
from tidings.aws.items import letter as letters
from tidings.core import (
    change_ports,
    consumer_ports,
    key_ports,
    ports,
    relay_ports,
    renewing,
    restoring,
    tombstones,
    watch_ports,
)
from tidings.core.memory import (
    MemoryClaims,
    MemoryConnections,
    MemoryConsumers,
    MemoryCoordinator,
    MemoryDepartures,
    MemoryFollowers,
    MemoryInbox,
    MemoryKeyCounts,
    MemoryKeyHolds,
    MemoryKeys,
    MemoryLog,
    MemoryOutbox,
    MemoryProfiles,
    MemoryRegistry,
    MemoryRelays,
    MemorySheets,
    MemoryState,
    MemoryTags,
    MemoryTallies,
    MemoryTombstones,
    MemoryWatches,
)
from tidings.core.outboxes import Letter

_COLD_S = 30  # an engine that has just started may need longer than a function would wait


class Log(ports.LogStore, ports.Intake, ports.TrimStore, Protocol): ...


class State(ports.StateStore, ports.Repairs, Protocol): ...


class Followers(ports.FollowerStore, ports.Checkpoints, Protocol): ...


class Outbox(ports.Outbox, Protocol):
    def leave(self, feed: str, letter: Letter) -> None: ...


class OwnersOutbox(DynamoDBOutbox):
    """With what an owner's transaction does."""

    def leave(self, feed: str, letter: Letter) -> None:
        self._client.put_item(TableName=self._table, Item=letters.encode(feed, letter))


class Connections(ports.ConnectionStore, ports.Roster, Protocol): ...


@dataclass(frozen=True)
class Stores:
    log: Log
    state: State
    departures: ports.DepartureStore
    followers: Followers
    claims: ports.ClaimStore
    profiles: ports.Profiles
    tallies: ports.Tallies
    connections: Connections
    inbox: ports.Inbox
    watches: watch_ports.WatchStore
    tags: change_ports.TagStore
    sheets: change_ports.Sheets
    registry: ports.Registry
    outbox: Outbox
    consumers: consumer_ports.ConsumerStore
    shelf: consumer_ports.ConsumerShelf
    relays: relay_ports.RelayStore
    clusters: relay_ports.Coordinator
    numbers: restoring.Numbers
    keys: key_ports.Keys
    key_counts: key_ports.KeyCounts
    key_holds: key_ports.KeyHolds
    renewals: renewing.RenewStore
    tombstones: tombstones.TombstoneStore


def in_memory() -> Stores:
    consumers = MemoryConsumers()
    inbox, watches, registry = MemoryInbox(), MemoryWatches(), MemoryRegistry()
    log = MemoryLog()
    return Stores(
        log,
        MemoryState(),
        MemoryDepartures(),
        MemoryFollowers(),
        MemoryClaims(),
        MemoryProfiles(),
        MemoryTallies(),
        MemoryConnections(inbox, watches, registry),
        inbox,
        watches,
        MemoryTags(),
        MemorySheets(),
        registry,
        MemoryOutbox(),
        consumers,
        consumers,
        MemoryRelays(log),
        MemoryCoordinator(),
        log,
        MemoryKeys(),
        MemoryKeyCounts(),
        MemoryKeyHolds(),
        log,
        MemoryTombstones(),
    )


def on_dynamodb(client: DynamoDBClient) -> Stores:
    consumers = DynamoDBConsumers(client, "control", lambda: uuid4().hex)
    return Stores(
        DynamoDBLog(client, "log", "control"),
        DynamoDBState(client, "state"),
        DynamoDBDepartures(client, "state"),
        DynamoDBFollowers(client, "control"),
        DynamoDBClaims(client, "control"),
        DynamoDBProfiles(client, "control"),
        DynamoDBTallies(lambda: client, "control"),
        DynamoDBConnections(client, "connections"),
        DynamoDBInbox(client, "connections"),
        DynamoDBWatches(client, "connections"),
        DynamoDBTags(client, "state"),
        DynamoDBSheets(client, "control"),
        DynamoDBRegistry(client, "connections"),
        OwnersOutbox(client, "outbox"),
        consumers,
        consumers,
        DynamoDBRelays(client, "log", "control"),
        DynamoDBClusters(client, "control"),
        DynamoDBNumbers(client, "log", "control", lambda ms: None),
        DynamoDBKeys(client, "control"),
        DynamoDBKeyCounts(client, "control"),
        DynamoDBKeyHolds(client, "control"),
        DynamoDBRenewals(client, "log", "control"),
        DynamoDBTombstones(client, "control"),
    )


@contextmanager
def emulated() -> Iterator[None]:
    """AWS in this process, asked by one thread at a time: tables of moto lose rows to a race."""
    lock, process = Lock(), BotocoreStubber.process_request

    def in_turn(stubber: BotocoreStubber, request: AWSPreparedRequest) -> Any:
        with lock:
            return process(stubber, request)

    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(BotocoreStubber, "process_request", in_turn)
        yield


@contextmanager
def client_in(environment: dict[str, str]) -> Iterator[DynamoDBClient]:
    """The client a function would make in this environment, with the tables of the blueprint."""
    account = {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**account, **environment}.items():
            patch.setenv(name, value)
        patient = boto3.client("dynamodb", config=Config(read_timeout=_COLD_S))
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
