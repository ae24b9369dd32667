"""WebSocket connections, their pending changes and live subscriptions on DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import change as changes
from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.aws.dynamodb.items.listeners import connection as connections
from tidings.aws.dynamodb.items.listeners import roster as rosters
from tidings.aws.dynamodb.items.listeners import subscription as watches
from tidings.aws.dynamodb.registry import DynamoDBRegistry
from tidings.aws.dynamodb.transport.conditional_writes import put_over
from tidings.aws.dynamodb.transport.queries import query, query_few
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.aws.runtime.clock import now_ms
from tidings.aws.runtime.thread_pool import Threads
from tidings.core.effects import Clock
from tidings.core.websocket.connections import Change, Connection, Subscription
from tidings.core.websocket.roster import Portion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.websocket.roster import Round

_WRITERS = 4  # threads that file a subscription under its keys, up to FILTER_VALUES_MAX


class DynamoDBInbox:
    """Implements `Inbox`."""

    def __init__(self, client: DynamoDBClient, table: str, clock: Clock = now_ms) -> None:
        self._client, self._table, self._clock = client, table, clock

    def post(self, feed: str, change: Change) -> None:
        item = changes.encode(feed, change, expires_ms=self._clock() + connections.SAFETY_MS)
        with translated():
            self._client.put_item(TableName=self._table, Item=item)

    def list(self, feed: str) -> Sequence[Change]:
        kind = text(changes.kind(feed))
        return [changes.decode(item) for item in query(self._client, self._table, kind)]

    def done(self, feed: str, change: Change) -> None:
        try:
            with translated():
                self._client.delete_item(
                    TableName=self._table,
                    Key=changes.key(feed, change.connection_id),
                    ConditionExpression="#token = :token",
                    ExpressionAttributeNames={"#token": "token"},
                    ExpressionAttributeValues={":token": text(change.token)},
                )
        except ConditionFailed:
            return

    def forget(self, feed: str, connection_id: str) -> Change | None:
        """Drop whatever the connection left here; the change that was dropped."""
        with translated():
            answer = self._client.delete_item(
                TableName=self._table,
                Key=changes.key(feed, connection_id),
                ReturnValues="ALL_OLD",
            )
        return changes.decode(answer["Attributes"]) if "Attributes" in answer else None


class DynamoDBWatches:
    """Implements `SubscriptionIndex` and `SubscriptionStore`."""

    def __init__(self, client: DynamoDBClient, table: str, clock: Clock = now_ms) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._threads = Threads(_WRITERS)

    def add(self, feed: str, watch: Subscription) -> None:
        expires_ms = self._clock() + connections.SAFETY_MS

        def put(key: str) -> None:
            item = watches.encode(feed, key, watch, expires_ms=expires_ms)
            with translated():
                self._client.put_item(TableName=self._table, Item=item)

        self._threads(put, watch.filter.keys())

    def remove(self, feed: str, watch: Subscription) -> None:
        def delete(key: str) -> None:
            with translated():
                self._client.delete_item(
                    TableName=self._table, Key=watches.key(feed, key, watch.connection_id)
                )

        self._threads(delete, watch.filter.keys())

    def find(self, feed: str, key: str) -> Sequence[Subscription]:
        kind = text(watches.kind(feed))
        found = query(self._client, self._table, kind, prefix=watches.prefix(key))
        return [watches.decode(item) for item in found]

    def all(self, feed: str) -> Sequence[Subscription]:
        return _once_each(query(self._client, self._table, text(watches.kind(feed))))

    def few(self, feed: str, at_most: int) -> Sequence[Subscription] | None:
        found = query_few(self._client, self._table, text(watches.kind(feed)), at_most)
        return _once_each(found) if found is not None else None


def _once_each(items: Iterable[Item]) -> list[Subscription]:
    found = {watch.connection_id: watch for watch in map(watches.decode, items)}
    return [watch for _, watch in sorted(found.items())]


class DynamoDBConnections:
    """
    Implements `ConnectionStore` and `Roster`.

    What a connection left in its feed's inbox and watches is found by the filter it has and the
    filter of a change on its way. What is missed in a crash expires by itself.
    """

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table
        self._inbox = DynamoDBInbox(client, table)
        self._watches = DynamoDBWatches(client, table)
        self._registry = DynamoDBRegistry(client, table)

    def open(self, connection: Connection) -> None:
        with translated():
            self._client.put_item(TableName=self._table, Item=connections.encode(connection))

    def get(self, connection_id: str) -> Connection | None:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=connections.key(connection_id), ConsistentRead=True
            )
        return connections.decode(answer["Item"]) if "Item" in answer else None

    def update(self, old: Connection, new: Connection) -> bool:
        assert new.id == old.id
        item = connections.encode(replace(new, version=old.version + 1))
        return put_over(self._client, self._table, item, old.version, may_be_new=False)

    def remove(self, connection_id: str) -> None:
        connection = self.get(connection_id)
        if connection is None:
            return
        if connection.feed:
            self._clear(connection)
        with translated():
            self._client.delete_item(TableName=self._table, Key=connections.key(connection_id))

    def _clear(self, connection: Connection) -> None:
        if connection.listener is not None:
            self._registry.leave(connection.feed, connection.id, connection.listener)
        change = self._inbox.forget(connection.feed, connection.id)
        for wanted in {connection.filter, change.filter if change else connection.filter}:
            self._watches.remove(connection.feed, Subscription(connection.id, wanted, since=0))

    def portion(self, place: str, limit: int) -> Portion:
        with translated():
            answer = self._client.scan(
                TableName=self._table,
                FilterExpression="begins_with(#kind, :prefix)",
                ExpressionAttributeNames={"#kind": "kind"},
                ExpressionAttributeValues={":prefix": text(connections.PREFIX)},
                Limit=limit,
                **rosters.start(place),
            )
        found = [connections.decode(item) for item in answer["Items"]]
        return Portion(found, rosters.place(answer.get("LastEvaluatedKey", {})))

    def round(self) -> Round:
        """Half the price; an older one is true as well, and repeats what was done since."""
        with translated():
            answer = self._client.get_item(TableName=self._table, Key=rosters.KEY)
        return rosters.decode(answer.get("Item", {}))

    def keep(self, round_: Round) -> None:
        with translated():
            self._client.put_item(TableName=self._table, Item=rosters.encode(round_))
