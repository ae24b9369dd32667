"""Relays on a twin: the table of the leader election, workers, and the first run of each relay."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.exceptions import EndpointConnectionError  # noqa: TID251 the twin creates tables

from tidings.aws.config.deployment import COORDINATION_TABLE
from tidings.aws.config.settings import CoordinatorUrl
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.replication.relay import RELAY
from tidings.twin.lambdas.lambda_api import Invoke
from tidings.twin.store import engine, tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient

FUNCTION = f"follow-{RELAY}"
AGAIN_S = 1.0  # after a failed start on a busy machine; the sweep would wake it within a minute


def create_leases(url: str, coordinator: CoordinatorUrl | None) -> None:
    """
    Create the table of the leader election, unless another twin has created it.

    If its store is not running, the next twin that starts while it runs creates the table.
    """
    if coordinator is None:
        return
    client = engine.tables_client(coordinator.endpoint or url)
    with contextlib.suppress(EndpointConnectionError):
        tables.create_one(client, coordinator.table, COORDINATION_TABLE)


def free_leases(client: DynamoDBClient, feeds: Iterable[str]) -> None:
    """
    Release the relays from the processes that held them.

    Only valid if no process can hold one: see `tables.free_leases`.
    """
    store = DynamoDBRelays(client, tables.name_of("log"), tables.name_of("control"))
    for feed in feeds:
        relay = store.relay(feed)
        if relay.owner:
            store.write(relay, replace(relay, owner="", lease_until_ms=0))


def workers(feeds: Collection[str]) -> dict[str, int]:
    """
    Return the number of workers: a run lasts for minutes, so one for each of *feeds*, plus one that
    detects a run in progress.
    """
    return {FUNCTION: len(feeds) + 1}


async def begin(feed: str, invoke: Invoke) -> None:
    """Invoke the first run at once; repeat it if the worker did not start in time."""
    payload = json.dumps({"ring": feed}).encode()
    while (await invoke(FUNCTION, payload)).error is not None:
        await asyncio.sleep(AGAIN_S)
