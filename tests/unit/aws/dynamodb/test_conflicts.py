"""Writes of items that a transaction of another process holds, which no emulator refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.stores import client_in, conflict, emulated
from tidings.aws import clients
from tidings.aws.dynamodb.due import DynamoDBDueFeeds
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.aws.dynamodb.table import Table
from tidings.core.errors import Unavailable
from tidings.core.log.due import Due
from tidings.core.replication.relay import Relay

KEY = {"name": {"S": "a"}, "kind": {"S": "b"}}
WRITES: dict[str, Callable[[DynamoDBClient], object]] = {
    "relay": lambda client: DynamoDBRelays(client, "log", "control").write(
        Relay("main"), Relay("main")
    ),
    "number": lambda client: DynamoDBLog(client, "log", "control").take("main", 1),
    "due": lambda client: DynamoDBDueFeeds(client, "control").settle(Due("main"), None, head=5),
    "delete": lambda client: Table(client, "control").delete(KEY),
    "together": lambda client: Table(client, "control").write_together(
        {"Delete": {"TableName": "control", "Key": KEY}}
    ),
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBClient]:
    with emulated(), client_in({}) as client:
        monkeypatch.setattr(clients, "CONFLICT_WAIT_S", 0)
        yield client


def refuse(client: DynamoDBClient, times: int) -> list[str]:
    """Refuse that many writes; return the list of the refused operations."""
    refused: list[str] = []

    def answer(request: Any, event_name: str, **_: object) -> AWSResponse | None:
        if len(refused) == times:
            return None
        refused.append(event_name.rpartition(".")[2])
        answered: Any = conflict(refused[-1])
        status, headers, body = answered
        return AWSResponse(request.url, status, headers, _Raw(body))

    events: Any = client.meta.events
    for each in ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"):
        events.register_first(f"before-send.dynamodb.{each}", answer)
    return refused


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


@pytest.mark.parametrize("name", WRITES)
def test_a_held_item_is_written_when_it_is_free(client: DynamoDBClient, name: str) -> None:
    refused = refuse(client, 3)
    WRITES[name](client)
    assert len(refused) == 3 and len({*refused}) == 1


@pytest.mark.parametrize("name", WRITES)
def test_an_item_that_stays_held_is_unavailable(client: DynamoDBClient, name: str) -> None:
    refused = refuse(client, 100)
    with pytest.raises(Unavailable):
        WRITES[name](client)
    assert len(refused) == 5
