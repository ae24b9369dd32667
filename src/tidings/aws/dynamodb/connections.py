"""WebSocket connections, pending changes of subscriptions, and live subscriptions, on DynamoDB.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A connection: `connection#<id>` and `-`. Each connection has a partition of its own. The item is
deleted when the connection ends. If the deletion fails, the item expires `SAFETY_MS` after the
connection was opened. `listener` is JSON in ASCII; connections of clients that are not listeners
lack it.

A pending change, which the push follower has not applied yet: `inbox#<lane>` and the id of the
connection. A blank follows the id if the connection moves to another lane. The item is deleted when
the change was applied. If the deletion fails, the item expires `SAFETY_MS` after it was written.

A subscription: `watch#<lane>`, and an index key of its filter, a NUL and the id of the connection.
All subscriptions with the same index key are adjacent. No index key contains a NUL, so the
subscriptions with other index keys have other prefixes. The item is deleted with the subscription.
If the deletion fails, the item expires `SAFETY_MS` after it was written.

The progress of the sweeps over all connections (`Round`): `roster` and `-`. `at` is the `kind` and
`name` of the last item that was read; it is missing at the beginning. `counted` and `told` are the
numbers of connections by feed, in this round and in the previous one. The item is missing until a
round first takes more than one sweep.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed, translate_errors
from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    Item,
    Layout,
    as_text,
    expiry,
    number,
    text,
    text_of,
    without_empty,
)
from tidings.aws.dynamodb.filters import FILTER, decode_admission, encode_admission
from tidings.aws.dynamodb.registry import SAFETY_MS, DynamoDBRegistry
from tidings.aws.dynamodb.table import TableStore
from tidings.aws.effects import Threads, now_ms
from tidings.core.model.events import OPTIONS, EventOptions
from tidings.core.triton.registration import Kind, Listener
from tidings.core.websocket.connections import (
    Change,
    Connection,
    ConnectionPage,
    Round,
    Subscription,
    storage_key,
)
from tidings.core.websocket.session import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


_PREFIX = "connection#"
_STORED = {"trace": "traced"}  # other options are stored with their names
_OPTIONS = Layout(
    EventOptions, **{_STORED.get(name, name): FLAG.sparse.of(name) for name in OPTIONS}
)


def _write_listener(listener: Listener) -> str:
    fields = {
        "version": listener.version,
        "feed": listener.feed,
        "instance": listener.instance,
        "service": listener.service,
        "kinds": [[kind.resource, *kind.subs] for kind in listener.kinds],
    }
    return json.dumps(fields, separators=(",", ":"))


def _read_listener(text_: str) -> Listener:
    fields = json.loads(text_)
    kinds = tuple(Kind(resource, tuple(subs)) for resource, *subs in fields.pop("kinds"))
    return Listener(**fields, kinds=kinds)


_CONNECTION = Layout(
    Connection,
    opened=NUMBER.of("opened_ms"),
    session=as_text(lambda state: state.value, State).of("state"),
    feed=TEXT.sparse,
    progress=TEXT.sparse,
    runner=TEXT.sparse,
    encoding=TEXT.sparse,
    filter=FILTER,
    listener=as_text(_write_listener, _read_listener).sparse,
    since=NUMBER,
    runner_until=NUMBER.of("runner_expires_ms"),
    version=NUMBER,
    lane=NUMBER.sparse,
)


def connection_key(connection_id: str) -> Item:
    return {"kind": text(f"{_PREFIX}{connection_id}"), "name": text("-")}


def connection_id_of(item: Item) -> str:
    """Return the id of the connection that *item* describes; "" if it is of another kind."""
    kind = text_of(item, "kind")
    return kind.removeprefix(_PREFIX) if kind.startswith(_PREFIX) else ""


def encode_connection(connection: Connection) -> Item:
    return {
        **connection_key(connection.id),
        **_CONNECTION.encode(connection),
        **_OPTIONS.encode(connection.options),
        **encode_admission(connection.admission),
        **expiry(connection.opened_ms + SAFETY_MS),
    }


def decode_connection(item: Item) -> Connection:
    id_ = text_of(item, "kind").removeprefix(_PREFIX)
    options = _OPTIONS.decode(item)
    return _CONNECTION.decode(item, id=id_, options=options, admission=decode_admission(item))


_CHANGE = Layout(Change, joins=FLAG, filter=FILTER, since=NUMBER, token=TEXT, moves=FLAG.sparse)
_MOVES = " "  # no connection id contains a blank


def inbox_kind(lane: str) -> str:
    return f"inbox#{lane}"


def change_key(lane: str, connection_id: str, *, moves: bool = False) -> Item:
    name = connection_id + _MOVES if moves else connection_id
    return {"kind": text(inbox_kind(lane)), "name": text(name)}


def encode_change(lane: str, change: Change, *, expires_ms: int) -> Item:
    named = change_key(lane, change.connection_id, moves=change.moves)
    return {**named, **_CHANGE.encode(change), **expiry(expires_ms)}


def decode_change(item: Item) -> Change:
    name = text_of(item, "name")
    return _CHANGE.decode(
        item, connection_id=name.removesuffix(_MOVES) if "moves" in item else name
    )


_SUBSCRIPTION = Layout(Subscription, filter=FILTER, encoding=TEXT.sparse, since=NUMBER)


def subscription_kind(lane: str) -> str:
    return f"watch#{lane}"


def subscription_prefix(filter_key: str) -> str:
    """Return the prefix of the names of all subscriptions under *filter_key*.

    A lone surrogate, which DynamoDB does not accept and no operation contains, is replaced by a
    question mark. So the subscriptions found may include some that do not match, but no matching
    subscription is missed.
    """
    return filter_key.encode("utf-8", "replace").decode() + "\0"


def subscription_key(lane: str, filter_key: str, connection_id: str) -> Item:
    return {
        "kind": text(subscription_kind(lane)),
        "name": text(subscription_prefix(filter_key) + connection_id),
    }


def encode_subscription(
    lane: str, filter_key: str, subscription: Subscription, *, expires_ms: int
) -> Item:
    return {
        **subscription_key(lane, filter_key, subscription.connection_id),
        **_SUBSCRIPTION.encode(subscription),
        **_OPTIONS.encode(subscription.options),
        **encode_admission(subscription.admission),
        **expiry(expires_ms),
    }


def decode_subscription(item: Item) -> Subscription:
    _, _, connection_id = text_of(item, "name").partition("\0")
    others = {"options": _OPTIONS.decode(item), "admission": decode_admission(item)}
    return _SUBSCRIPTION.decode(item, connection_id=connection_id, **others)


ROSTER_KEY: Item = {"kind": text("roster"), "name": text("-")}


def scan_end(last: Item) -> str:
    """Return the place after the item with the key *last*.

    Return "" if *last* is empty, because the scan has then reached its end.
    """
    return json.dumps([last["kind"]["S"], last["name"]["S"]]) if last else ""


def scan_start(resume_at: str) -> dict[str, Any]:
    """Return the arguments with which a scan continues at *resume_at*, a result of `scan_end`."""
    if not resume_at:
        return {}
    kind, name = json.loads(resume_at)
    return {"ExclusiveStartKey": {"kind": text(kind), "name": text(name)}}


def encode_round(round_: Round) -> Item:
    return {
        **ROSTER_KEY,
        **without_empty({"at": round_.resume_at}),
        "counted": _numbers(round_.counted),
        "told": _numbers(round_.previous),
    }


def decode_round(item: Item) -> Round:
    """Return the round in *item*; `Round()` if *item* is empty."""
    counted, previous = _numbers_of(item, "counted"), _numbers_of(item, "told")
    return Round(text_of(item, "at"), counted, previous)


def _numbers(values: Mapping[str, int]) -> Item:
    return {"M": {name: number(value) for name, value in values.items()}}


def _numbers_of(item: Item, name: str) -> dict[str, int]:
    members = item.get(name, {"M": {}})["M"]
    return {each: int(value["N"]) for each, value in members.items()}


_WRITERS = 4  # threads; a filter has up to FILTER_VALUES_MAX keys, and each key an item


class DynamoDBInbox(TableStore):
    """Implements `Inbox`."""

    def post(self, lane: str, change: Change) -> None:
        expires_ms = now_ms() + SAFETY_MS
        self._table.put(encode_change(lane, change, expires_ms=expires_ms))

    def list(self, lane: str) -> Sequence[Change]:
        return [decode_change(item) for item in self._table.of_kind(inbox_kind(lane))]

    def done(self, lane: str, change: Change) -> None:
        try:
            key = change_key(lane, change.connection_id, moves=change.moves)
            self._table.delete(key, "#token = :token", {":token": text(change.token)})
        except ConditionFailed:
            return

    def forget(self, lane: str, connection_id: str) -> Change | None:
        """Delete the pending change of the connection's subscription; return it, or None."""
        item = self._table.delete(change_key(lane, connection_id), returns="ALL_OLD")
        return decode_change(item) if item else None


class DynamoDBSubscriptions(TableStore):
    """Implements `SubscriptionStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        super().__init__(client, table)
        self._threads = Threads(_WRITERS)

    def add(self, lane: str, subscription: Subscription) -> None:
        expires_ms = now_ms() + SAFETY_MS

        def put(key: str) -> None:
            self._table.put(encode_subscription(lane, key, subscription, expires_ms=expires_ms))

        self._threads(put, subscription.filter.keys())

    def remove(self, lane: str, subscription: Subscription) -> None:
        def delete(key: str) -> None:
            self._table.delete(subscription_key(lane, key, subscription.connection_id))

        self._threads(delete, subscription.filter.keys())

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        items = self._table.of_kind(subscription_kind(lane), subscription_prefix(key))
        return [decode_subscription(item) for item in items]

    def all(self, lane: str) -> Sequence[Subscription]:
        return _distinct(self._table.of_kind(subscription_kind(lane)))

    def all_if_at_most(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        items = self._table.few_of_kind(subscription_kind(lane), at_most)
        return _distinct(items) if items is not None else None

    def some(self, lane: str, at_most: int) -> Sequence[Subscription]:
        return _distinct(self._table.first_of_kind(subscription_kind(lane), at_most))


def _distinct(items: Iterable[Item]) -> list[Subscription]:
    """Return each subscription once, although it has an item for each key of its filter."""
    by_connection = {each.connection_id: each for each in map(decode_subscription, items)}
    return [each for _, each in sorted(by_connection.items())]


class DynamoDBConnections(TableStore):
    """Implements `ConnectionStore`.

    When a connection is removed, its subscriptions are found by the index keys of two filters: the
    filter of the connection, and the filter of its pending change. A lane that has handed the
    connection over to another lane removes the connection's subscription from its own index. Items
    that a crash leaves expire by themselves.
    """

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        super().__init__(client, table)
        self._inbox = DynamoDBInbox(client, table)
        self._subscriptions = DynamoDBSubscriptions(client, table)
        self._registry = DynamoDBRegistry(client, table)

    def open(self, connection: Connection) -> None:
        self._table.put(encode_connection(connection))

    def get(self, connection_id: str) -> Connection | None:
        item = self._table.get(connection_key(connection_id))
        return decode_connection(item) if item else None

    def update(self, old: Connection, new: Connection) -> bool:
        assert new.id == old.id
        item = encode_connection(replace(new, version=old.version + 1))
        return self._table.put_over(item, old.version)

    def remove(self, connection_id: str) -> None:
        connection = self.get(connection_id)
        if connection is None:
            return
        if connection.feed:
            self._clear(connection)
        self._table.delete(connection_key(connection_id))

    def _clear(self, connection: Connection) -> None:
        if connection.listener is not None:
            self._registry.leave(connection.feed, connection.id, connection.listener)
        lane = storage_key(connection.feed, connection.lane)
        change = self._inbox.forget(lane, connection.id)
        for wanted in {connection.filter, change.filter if change else connection.filter}:
            self._subscriptions.remove(lane, Subscription(connection.id, wanted, since=0))

    def page(self, resume_at: str, limit: int) -> ConnectionPage:
        with translate_errors():
            answer = self._table.client.scan(
                TableName=self._table.name,
                FilterExpression="begins_with(#kind, :prefix)",
                ExpressionAttributeNames={"#kind": "kind"},
                ExpressionAttributeValues={":prefix": text(_PREFIX)},
                Limit=limit,
                **scan_start(resume_at),
            )
        page = [decode_connection(item) for item in answer["Items"]]
        return ConnectionPage(page, scan_end(answer.get("LastEvaluatedKey", {})))

    def round(self) -> Round:
        """Return the round, read with eventual consistency.

        If an older round is read, sweeps only repeat some work.
        """
        return decode_round(self._table.get(ROSTER_KEY, consistent=False) or {})

    def keep(self, round_: Round) -> None:
        self._table.put(encode_round(round_))
