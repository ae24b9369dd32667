"""WebSocket connections, their pending changes and live subscriptions on DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import change as changes
from tidings.aws.dynamodb.items import connection as connections
from tidings.aws.dynamodb.items import roster as rosters
from tidings.aws.dynamodb.items import subscription as subscriptions
from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.aws.dynamodb.registry import DynamoDBRegistry
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.aws.runtime.clock import now_ms
from tidings.aws.runtime.thread_pool import Threads
from tidings.core.websocket.connections import Change, Connection, Subscription
from tidings.core.websocket.lanes import filed_under
from tidings.core.websocket.roster import Portion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.websocket.roster import Round

_WRITERS = 4  # threads that file a subscription under its keys, up to FILTER_VALUES_MAX


class DynamoDBInbox(TableStore):
    """Implements `Inbox`."""

    def post(self, lane: str, change: Change) -> None:
        expires_ms = now_ms() + connections.SAFETY_MS
        self._table.put(changes.encode(lane, change, expires_ms=expires_ms))

    def list(self, lane: str) -> Sequence[Change]:
        return [changes.decode(item) for item in self._table.of_kind(changes.kind(lane))]

    def done(self, lane: str, change: Change) -> None:
        try:
            key = changes.key(lane, change.connection_id, moves=change.moves)
            self._table.delete(key, "#token = :token", {":token": text(change.token)})
        except ConditionFailed:
            return

    def forget(self, lane: str, connection_id: str) -> Change | None:
        """Drop whatever the connection left here; the change that was dropped."""
        item = self._table.delete(changes.key(lane, connection_id), returns="ALL_OLD")
        return changes.decode(item) if item else None


class DynamoDBSubscriptions(TableStore):
    """Implements `SubscriptionIndex` and `SubscriptionStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        super().__init__(client, table)
        self._threads = Threads(_WRITERS)

    def add(self, lane: str, watch: Subscription) -> None:
        expires_ms = now_ms() + connections.SAFETY_MS

        def put(key: str) -> None:
            self._table.put(subscriptions.encode(lane, key, watch, expires_ms=expires_ms))

        self._threads(put, watch.filter.keys())

    def remove(self, lane: str, watch: Subscription) -> None:
        def delete(key: str) -> None:
            self._table.delete(subscriptions.key(lane, key, watch.connection_id))

        self._threads(delete, watch.filter.keys())

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        items = self._table.of_kind(subscriptions.kind(lane), subscriptions.prefix(key))
        return [subscriptions.decode(item) for item in items]

    def all(self, lane: str) -> Sequence[Subscription]:
        return _distinct(self._table.of_kind(subscriptions.kind(lane)))

    def few(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        items = self._table.few_of_kind(subscriptions.kind(lane), at_most)
        return _distinct(items) if items is not None else None


def _distinct(items: Iterable[Item]) -> list[Subscription]:
    """A subscription has an item for each of its filter's keys."""
    by_connection = {each.connection_id: each for each in map(subscriptions.decode, items)}
    return [each for _, each in sorted(by_connection.items())]


class DynamoDBConnections(TableStore):
    """
    Implements `ConnectionStore` and `Roster`.

    A connection's inbox and subscription items are located by its current filter and by the filter
    of a pending change. A lane that is handing the connection over clears its own. Items missed in
    a crash expire by themselves.
    """

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        super().__init__(client, table)
        self._inbox = DynamoDBInbox(client, table)
        self._subscriptions = DynamoDBSubscriptions(client, table)
        self._registry = DynamoDBRegistry(client, table)

    def open(self, connection: Connection) -> None:
        self._table.put(connections.encode(connection))

    def get(self, connection_id: str) -> Connection | None:
        item = self._table.get(connections.key(connection_id))
        return connections.decode(item) if item else None

    def update(self, old: Connection, new: Connection) -> bool:
        assert new.id == old.id
        item = connections.encode(replace(new, version=old.version + 1))
        return self._table.put_over(item, old.version, may_be_new=False)

    def remove(self, connection_id: str) -> None:
        connection = self.get(connection_id)
        if connection is None:
            return
        if connection.feed:
            self._clear(connection)
        self._table.delete(connections.key(connection_id))

    def _clear(self, connection: Connection) -> None:
        if connection.listener is not None:
            self._registry.leave(connection.feed, connection.id, connection.listener)
        lane = filed_under(connection.feed, connection.lane)
        change = self._inbox.forget(lane, connection.id)
        for wanted in {connection.filter, change.filter if change else connection.filter}:
            self._subscriptions.remove(lane, Subscription(connection.id, wanted, since=0))

    def portion(self, place: str, limit: int) -> Portion:
        with translated():
            answer = self._table.client.scan(
                TableName=self._table.name,
                FilterExpression="begins_with(#kind, :prefix)",
                ExpressionAttributeNames={"#kind": "kind"},
                ExpressionAttributeValues={":prefix": text(connections.PREFIX)},
                Limit=limit,
                **rosters.start(place),
            )
        page = [connections.decode(item) for item in answer["Items"]]
        return Portion(page, rosters.place(answer.get("LastEvaluatedKey", {})))

    def round(self) -> Round:
        """Half the price; an older one is true as well, and repeats what was done since."""
        return rosters.decode(self._table.get(rosters.KEY, consistent=False) or {})

    def keep(self, round_: Round) -> None:
        self._table.put(rosters.encode(round_))
