"""Named consumers on DynamoDB, with parked messages and operators' notes, in the control table.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A consumer: `consumer#<feed>`, name. `position` is missing until a message is acknowledged.

A parked message: `parked#<feed>#<name>`, id of the message.

A note: `note#<feed>#<name>`, its time in ms with 14 digits, and a random suffix.

Fields with their default values are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed, translate_errors
from tidings.aws.dynamodb import due
from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Item,
    Layout,
    as_text,
    expiry,
    text,
    text_of,
    texts,
    texts_of,
)
from tidings.aws.dynamodb.table import Table, of_version
from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer, Failure, Note, Parked
from tidings.core.model import filters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.consumers.consumer import Change
    from tidings.core.effects import NewId


_PREFIX = "consumer#"
_POSITION = as_text(
    lambda position_: position.encode_position(position_) or "", position.read
).sparse
_FAILURE = Layout(Failure, id=TEXT.sparse, error=TEXT.sparse, at=NUMBER.of("at_ms"), times=NUMBER)
_CONSUMER = Layout(
    Consumer,
    position=_POSITION,
    acked=as_text(position.encode_spans, position.decode_spans, ()).sparse,
    sent=_POSITION,
    single=_POSITION,
    retries=TEXTS.sparse,
    parked=NUMBER.sparse,
    failure=_FAILURE.in_map().sparse,
    paused=FLAG.sparse,
    owner=TEXT.sparse,
    fence=NUMBER.sparse,
    lease_until=NUMBER.sparse.of("until_ms"),
    written=NUMBER.sparse,
    version=NUMBER,
)
_PARKED = Layout(Parked, line=TEXT, error=TEXT, at=NUMBER.of("at_ms"), attempts=NUMBER)
_NOTE = Layout(
    Note, who=TEXT.sparse, what=TEXT.sparse, why=TEXT.sparse, id=TEXT.sparse, at=NUMBER.of("at_ms")
)


def consumer_kind(feed: str) -> str:
    return f"{_PREFIX}{feed}"


def consumer_key(feed: str, name: str) -> Item:
    return {"kind": text(consumer_kind(feed)), "name": text(name)}


def encode(consumer: Consumer) -> Item:
    return {
        **consumer_key(consumer.feed, consumer.name),
        **{name: texts(values) for name, values in consumer.filter.values().items()},
        **({"erasures": FLAG.write(True)} if consumer.filter.erasures else {}),
        **_CONSUMER.encode(consumer),
    }


def decode(item: Item) -> Consumer:
    return _CONSUMER.decode(
        item,
        feed=text_of(item, "kind").removeprefix(_PREFIX),
        name=text_of(item, "name"),
        filter=filters.of(
            {name: texts_of(item, name) for name in filters.FIELDS}, erasures="erasures" in item
        ),
    )


def parked_kind(feed: str, name: str) -> str:
    return f"parked#{feed}#{name}"


def parked_key(feed: str, name: str, message: str) -> Item:
    return {"kind": text(parked_kind(feed, name)), "name": text(message)}


def note_kind(feed: str, name: str) -> str:
    return f"note#{feed}#{name}"


class DynamoDBConsumers:
    """Implements `ConsumerStore`.

    A change of a consumer alone is one conditional write. If a change also has a note or parked
    messages, all items are written by a transaction, which costs twice as much.
    """

    def __init__(self, client: DynamoDBClient, table: str, new_id: NewId) -> None:
        self._table, self._new_id = Table(client, table), new_id

    def consumer(self, feed: str, name: str) -> Consumer | None:
        item = self._table.get(consumer_key(feed, name))
        return decode(item) if item else None

    def consumers(self, feed: str) -> Sequence[Consumer]:
        return [decode(item) for item in self._table.of_kind(consumer_kind(feed))]

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        if not version or change.note is not None:
            due.mark(self._table, feed)
        first = self._consumer_write(feed, name, version, change.consumer)
        others: list[Any] = list(self._other_writes(feed, name, change))
        try:
            with translate_errors():
                if others:
                    self._table.client.transact_write_items(TransactItems=[first, *others])
                else:
                    self._alone(first)
        except ConditionFailed as failed:
            return failed.retried and failed.item == first.get("Put", {}).get("Item")
        return True

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        items = self._table.of_kind(parked_kind(feed, name))
        return [_PARKED.decode(item, id=text_of(item, "name")) for item in items]

    def rewrite_parked(self, feed: str, name: str, parked: Parked, changed: Parked) -> bool:
        """Replace the message *parked* with *changed*; see `RewriteStore`."""
        key, before = parked_key(feed, name, parked.id), _PARKED.encode(parked)
        condition = " AND ".join(f"#{field} = :{field}" for field in before)
        values = {f":{field}": value for field, value in before.items()}
        item = {**key, **_PARKED.encode(changed)}
        try:
            self._table.put(item, condition, values)
        except ConditionFailed as failed:
            return failed.item == item
        return True

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        answer = self._table.page(
            "#kind = :kind",
            {":kind": text(note_kind(feed, name))},
            consistent=False,
            ScanIndexForward=False,
            Limit=limits.NOTES_MAX,
        )
        return [_NOTE.decode(item) for item in answer["Items"]]

    def _alone(self, write: Any) -> None:
        client = self._table.client
        if "Put" in write:
            client.put_item(**write["Put"], ReturnValuesOnConditionCheckFailure="ALL_OLD")
        else:
            client.delete_item(**write["Delete"])

    def _consumer_write(self, feed: str, name: str, version: int, consumer: Consumer | None) -> Any:
        condition = {"TableName": self._table.name, **of_version(version)}
        if consumer is None:
            return {"Delete": {**condition, "Key": consumer_key(feed, name)}}
        stored = replace(consumer, feed=feed, name=name, version=version + 1)
        return {"Put": {**condition, "Item": encode(stored)}}

    def _other_writes(self, feed: str, name: str, change: Change) -> Iterator[Any]:
        if change.note is not None:
            at_ms = change.note.at_ms
            yield self._put(
                {
                    "kind": text(note_kind(feed, name)),
                    "name": text(f"{at_ms:014d}-{self._new_id()}"),
                    **_NOTE.encode(change.note),
                    **expiry(at_ms + limits.NOTE_MS),
                }
            )
        if change.park is not None:
            key = parked_key(feed, name, change.park.id)
            yield self._put({**key, **_PARKED.encode(change.park)})
        for message in change.drop:
            key = parked_key(feed, name, message)
            yield {"Delete": {"TableName": self._table.name, "Key": key}}

    def _put(self, item: Item) -> dict[str, Any]:
        return {"Put": {"TableName": self._table.name, "Item": item}}
