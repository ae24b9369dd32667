"""The feeds that are due, in their items, and writes of items that a transaction holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.stores import client_in, conflict, emulated
from tidings.aws.dynamodb.attributes import head_key
from tidings.aws.dynamodb.due import DynamoDBDueFeeds, due_key, wake
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.aws.dynamodb.table import Table
from tidings.core.errors import Unavailable
from tidings.core.log.due import Due
from tidings.core.replication.relay import Relay

NOW = 1_764_000_000_000
FEEDS_MANY = 1_000


@pytest.fixture
def client() -> Iterator[DynamoDBClient]:
    with emulated(), client_in({}) as client:
        yield client


@pytest.fixture
def store(client: DynamoDBClient) -> DynamoDBDueFeeds:
    return DynamoDBDueFeeds(client, "control")


@pytest.fixture
def log(client: DynamoDBClient) -> DynamoDBLog:
    return DynamoDBLog(client, "log", "control")


def requests(client: DynamoDBClient) -> list[str]:
    """Return the list to which the names of all requests are added from now on."""
    found: list[str] = []

    def note(request: Any, **_: object) -> None:
        target = request.headers["X-Amz-Target"]
        name = target.decode() if isinstance(target, bytes) else target
        found.append(name.rpartition(".")[2])

    client.meta.events.register_first("before-send.dynamodb", note)
    return found


def visit(store: DynamoDBDueFeeds, feed: str, head: int, next_ms: int | None = None) -> bool:
    (due,) = (each for each in store.due(NOW) if each.feed == feed)
    return store.settle(due, next_ms, head=head)


def test_idle_feeds_cost_one_query(client: DynamoDBClient, log: DynamoDBLog) -> None:
    """However many they are, also if each is due at some later time."""
    store, control = DynamoDBDueFeeds(client, "control"), Table(client, "control")
    for number in range(FEEDS_MANY):
        control.put({**due_key(f"feed-{number}", NOW + 1 + number), "feed": {"S": "x"}})
    assert store.due(NOW) == []
    found = requests(client)
    assert store.due(NOW) == []
    assert found == ["Query"]
    assert len(store.due(NOW + 10)) > 0


def test_a_feed_in_use_costs_nothing(
    client: DynamoDBClient, store: DynamoDBDueFeeds, log: DynamoDBLog
) -> None:
    """A number is taken with one request, unless it is the first one or the feed was idle."""
    found = requests(client)
    assert log.take("main") == 1
    assert found == ["UpdateItem"] * 2
    assert visit(store, "main", head=1)
    found.clear()
    assert log.take("main") == 2
    assert found == ["UpdateItem"] * 3  # the number, the mark, and the end of `idle`
    assert [each.feed for each in store.due(NOW)] == ["main"]
    found.clear()
    assert log.take("main") == 3
    assert found == ["UpdateItem"]


def test_a_number_that_is_taken_between_two_steps_keeps_the_feed_due(
    client: DynamoDBClient, store: DynamoDBDueFeeds, log: DynamoDBLog
) -> None:
    """After the head was marked as idle, and before the mark of the feed is deleted."""
    log.take("main")
    (due,) = store.due(NOW)
    assert store._rests("main", 1)
    log.take("main")
    assert not store._unmark(due)
    assert [each.feed for each in store.due(NOW)] == ["main"]


def test_a_late_writer_does_not_end_a_later_rest(
    client: DynamoDBClient, store: DynamoDBDueFeeds, log: DynamoDBLog
) -> None:
    """It took a number and marked the feed; before it ends the rest, a visit is settled."""
    control = Table(client, "control")
    log.take("main")
    assert visit(store, "main", head=1)
    idle = control.get(head_key("main"))
    assert idle is not None
    log.take("main")
    assert visit(store, "main", head=2)
    wake(control, idle, head_key("main"), "main")  # the late writer
    assert visit(store, "main", head=2)
    log.take("main")
    assert [each.feed for each in store.due(NOW)] == ["main"]


def test_a_later_visit_replaces_the_earlier_times(
    client: DynamoDBClient, store: DynamoDBDueFeeds
) -> None:
    store.mark("main")
    assert visit(store, "main", head=0, next_ms=NOW + 5)
    assert store.due(NOW) == [] and store.due(NOW + 4) == []
    (due,) = store.due(NOW + 5)
    assert due == Due("main", at_ms=NOW + 5)
    assert store.settle(due, NOW + 9, head=0)
    assert store.due(NOW + 8) == []
    (due,) = store.due(NOW + 9)
    assert store.settle(due, None, head=0)
    assert store.due(NOW + 99) == []
    items = client.query(
        TableName="control",
        KeyConditionExpression="kind = :kind",
        ExpressionAttributeValues={":kind": {"S": "due"}},
    )["Items"]
    assert [item["name"]["S"] for item in items] == ["known"]


def test_deployed_feeds_are_due_at_first_and_after_a_deployment(client: DynamoDBClient) -> None:
    """A deployment that does not change them marks none, and neither does a new process."""
    store = DynamoDBDueFeeds(client, "control", ("a", "b"))
    assert [each.feed for each in store.due(NOW)] == ["a", "b"]
    for name in ("a", "b"):
        assert visit(store, name, head=0)
    found = requests(client)
    assert DynamoDBDueFeeds(client, "control", ("b", "a")).due(NOW) == []
    assert found == ["GetItem", "Query"]
    later = DynamoDBDueFeeds(client, "control", ("a", "b", "c"))
    assert [each.feed for each in later.due(NOW)] == ["a", "b", "c"]


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
