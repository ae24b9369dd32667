"""Relays on a twin: where leaders are elected, workers, and the first run of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.exceptions import EndpointConnectionError  # noqa: TID251 the twin creates tables
from tidings.aws.config.coordinator import CoordinatorUrl
from tidings.aws.config.deployment import COORDINATION_TABLE
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.replication.relay import RELAY
from tidings.twin.lambdas.lambda_api import Invoke
from tidings.twin.store import engine, tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient

FUNCTION = f"follow-{RELAY}"
AGAIN_S = 1.0  # a machine that is busy starting; the sweep would wake it within a minute


def create_leases(url: str, coordinator: CoordinatorUrl | None) -> None:
    """
    Create the table where leaders are elected, unless a twin before us has.

    Where its store is away, it is created by whoever starts when it is there.
    """
    if coordinator is None:
        return
    client = engine.tables_client(coordinator.endpoint or url)
    with contextlib.suppress(EndpointConnectionError):
        tables.create_one(client, coordinator.table, COORDINATION_TABLE)


def free_leases(client: DynamoDBClient, feeds: Iterable[str]) -> None:
    """
    Take the relays away from whoever held them.

    Only right when nobody can: see `tables.free_leases`.
    """
    store = DynamoDBRelays(client, tables.name_of("log"), tables.name_of("control"))
    for feed in feeds:
        relay = store.relay(feed)
        if relay.owner:
            store.write(relay, replace(relay, owner="", lease_until_ms=0))


def workers(feeds: Collection[str]) -> dict[str, int]:
    """A run lasts for minutes: one for each of *feeds*, and one to find that there is another."""
    return {FUNCTION: len(feeds) + 1}


async def begin(feed: str, invoke: Invoke) -> None:
    """The first run, at once; a worker that did not start in time is tried again."""
    payload = json.dumps({"ring": feed}).encode()
    while (await invoke(FUNCTION, payload)).error is not None:
        await asyncio.sleep(AGAIN_S)
