"""Writing to one's own table and to the feed in one transaction.

On a twin: the outbox is a table of DynamoDB, and the function `forward` reads its stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.compat.oplog.wire import until
from tests.compat.triton.wire import ChangeFeed, item, v1
from tests.twin import Twin
from tidings.client import publish_with

OUTBOX = "tidings-local-outbox"


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", "main,t00,t01", "--resource", "vm:nic,alias=/vms") as running:
        yield running


@pytest.fixture
def feed(twin: Twin, request: pytest.FixtureRequest) -> ChangeFeed:
    """One that the other test has not touched."""
    return ChangeFeed(twin.port, "t00" if "and_its_item" in request.node.name else "t01")


@pytest.fixture(scope="module")
def client(twin: Twin) -> Any:
    """The owner's: of the DynamoDB on which the twin is, with a table of its own."""
    found = boto3.client(
        "dynamodb",
        endpoint_url=twin.dynamodb_url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    found.create_table(
        TableName="vms",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return found


def write(name: str) -> dict[str, Any]:
    """Return the item of a new machine."""
    return {
        "Put": {
            "TableName": "vms",
            "Item": {"id": {"S": name}},
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }


@pytest.mark.java
def test_F43_a_write_and_its_item_are_one(feed: ChangeFeed, client: Any) -> None:
    """Both exist, or neither: a refused write sends no item."""

    def publish(name: str) -> None:
        told = [item(name)]
        publish_with(client, [write(name)], outbox=OUTBOX, feed=feed.name, items=told)

    with feed.registered(v1()) as socket:
        publish("x1")
        assert socket.hear()["changedResourceId"] == "x1"
        with pytest.raises(client.exceptions.TransactionCanceledException):
            publish("x1")
        publish("x2")
        assert socket.hear()["changedResourceId"] == "x2"
        assert socket.silent()
    until(lambda: client.scan(TableName=OUTBOX)["Items"] == [])


@pytest.mark.java
def test_a_message_that_a_feed_refuses_is_put_aside(feed: ChangeFeed, client: Any) -> None:
    """It is stored with the reason, and does not delay the messages after it."""
    for told in (item("d", resource="disk"), item("x3")):
        publish_with(client, [], outbox=OUTBOX, feed=feed.name, items=[told])

    def refused() -> list[dict[str, Any]]:
        found = client.scan(TableName=OUTBOX)["Items"]
        return found if [each["feed"]["S"] for each in found] == [f"refused#{feed.name}"] else []

    (message,) = until(refused)
    assert message["reason"]["S"] == "unknown resource: disk"
    assert json.loads(message["body"]["S"]) == item("d", resource="disk")
    until(lambda: [each["id"] for each in feed.objects()["objects"]] == ["x3"])


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({}, "either operations or items"),
        ({"operations": [{}], "items": [{}]}, "either operations or items"),
        ({"items": [{"a": "x" * 380_000}]}, "at most 380000 bytes"),
    ],
)
def test_what_cannot_be_left_is_refused_before(told: dict[str, Any], sentence: str) -> None:
    """Nothing is written."""
    with pytest.raises(ValueError, match=sentence):
        publish_with(object(), [], outbox="o", **told)
