"""Records on DynamoDB, in one table.

The partition key is `<kind>#<feed>`, or `<kind>#<feed>#<of>`; for the records of the host `<kind>`.
The sort key is the name, or `-` for the name "". The key of a kind that `is_together` is `<kind>`
and the feed. The fields are attributes with their names. A
write updates attributes and does not replace the item, so that unknown attributes survive.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed, translate_errors
from tidings.aws.dynamodb import due
from tidings.aws.dynamodb.attributes import (
    Item,
    expiry,
    expiry_ms,
    number,
    plain,
    seconds,
    text,
    text_of,
    to_attribute,
)
from tidings.aws.dynamodb.table import TableStore, expressions
from tidings.aws.effects import now_ms
from tidings.core.records import HOST_RECORDS, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.effects import Clock
    from tidings.core.records import Kind, Write

_UNNAMED = "-"  # an empty text is not allowed in a key
_KEY = frozenset({"kind", "name", "expires"})  # the attributes of an item that are not fields


def record_key(feed: str, kind: Kind, name: str = "", of: str = "") -> Item:
    """Return the key of the item of a record."""
    if kind.is_together:
        return {"kind": text(kind.prefix), "name": text(feed)}
    parts = (kind.prefix, feed, of)
    partition = kind.prefix if feed == HOST_RECORDS else "#".join(filter(None, parts))
    return {"kind": text(partition), "name": text(name or _UNNAMED)}


def find_key(
    client: DynamoDBClient, control_table: str, name: str, deployed: Collection[str]
) -> str:
    """Return the key of the feed *name*, for a command that works on the tables of a stage.

    *deployed* are the feeds of the deployment, which exist without a record.

    Raises:
        InvalidFeed, UnknownFeed, FeedDeleted: see `FeedNames`.
    """
    from tidings.core.feeds.directory import Directory
    from tidings.core.feeds.records import FeedStore

    feeds = FeedStore(DynamoDBRecords(client, control_table))
    return Directory(feeds, deployed, now_ms).key(name)


class DynamoDBRecords(TableStore):
    """Implements `RecordStore`.

    One write is one conditional request. Several writes are a transaction, in which each costs
    twice as much.
    """

    def __init__(self, client: DynamoDBClient, table: str, clock: Clock = now_ms) -> None:
        super().__init__(client, table)
        self._clock = clock

    def get(
        self, feed: str, kind: Kind, name: str = "", of: str = "", *, eventual: bool = False
    ) -> Record | None:
        key = record_key(feed, kind, name, of)
        item = self._table.get(key, consistent=False) if eventual else None
        item = item or self._table.get(key)
        if not item or self._has_expired(item):
            return None
        return self._record(item)._replace(name=name)

    def query(
        self,
        feed: str,
        kind: Kind,
        of: str = "",
        *,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> Iterator[Record]:
        condition, values = "#kind = :kind", {":kind": record_key(feed, kind, of=of)["kind"]}
        if after:
            condition, values = f"{condition} AND #name > :after", {**values, ":after": text(after)}
        more: dict[str, Any] = {"Limit": limit} if limit else {}
        if newest:
            more |= {"ScanIndexForward": False, "consistent": False}
        items = self._table.items(condition, values, **more)
        found = (self._record(item) for item in items if not self._has_expired(item))
        return islice(found, limit or None)

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        if mark and any(each.kind.is_due for each in writes):
            due.mark(self._table, feed)
        requests = self.requests(feed, writes)
        if len(requests) > 1:
            return self._table.write_together(*requests)
        ((operation, request),) = requests[0].items()
        return self._write_alone(operation, request, writes[0])

    def requests(self, feed: str, writes: Sequence[Write]) -> list[dict[str, Any]]:
        """Return *writes* as members of a transaction."""
        return [self._request(feed, each) for each in writes]

    def _request(self, feed: str, write: Write) -> dict[str, Any]:
        key = record_key(feed, write.kind, write.name, write.of)
        conditions, values = self._condition(write)
        update = ""
        if write.fields:
            until = expiry(write.expires_ms).get("expires")
            changed = {**write.fields, "expires": write.expires_ms or None}
            sets = [f"#{name} = :{name}" for name, each in changed.items() if each is not None]
            gone = [f"#{name}" for name, each in changed.items() if each is None]
            values |= {
                f":{name}": to_attribute(each)
                for name, each in write.fields.items()
                if each is not None
            }
            values |= {":expires": until} if until else {}
            update = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(gone)}" if gone else "")
        operation = "Update" if update else "Delete" if write.fields is None else "ConditionCheck"
        given = expressions(values, ConditionExpression=conditions, UpdateExpression=update)
        return {operation: {"TableName": self._table.name, "Key": key, **given}}

    def _condition(self, write: Write) -> tuple[str, Item]:
        """Return the condition that the record is as expected, and its values."""
        values: Item = {}
        conditions: list[str] = []
        for name, each in write.expected.items():
            if each is None:
                conditions.append(f"attribute_not_exists(#{name})")
            else:
                conditions.append(f"#{name} = :was_{name}")
                values[f":was_{name}"] = to_attribute(each)
        condition = " AND ".join(conditions)
        if write.expires_ms and condition and not values:
            # DynamoDB deletes an expired item only hours later.
            condition = f"{condition} OR #expires <= :now"
            values[":now"] = number(self._clock() // 1000)
        return condition, values

    def _write_alone(self, operation: str, request: dict[str, Any], write: Write) -> bool:
        client: Any = self._table.client
        call = client.update_item if operation == "Update" else client.delete_item
        if write.expected:
            request = {**request, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        try:
            with translate_errors():
                call(**request)
        except ConditionFailed as failed:
            # If the answer of the first attempt is lost, botocore repeats the request, which finds
            # the written record.
            return failed.retried and self._is_done(write, failed.item)
        return True

    def _is_done(self, write: Write, item: Item) -> bool:
        if write.fields is None or not item:
            return write.fields is None and not item
        found = self._record(item).fields
        return expiry_ms(item) == seconds(write.expires_ms) * 1000 and all(
            found.get(name) == each for name, each in write.fields.items()
        )

    def _record(self, item: Mapping[str, Any]) -> Record:
        name = text_of(item, "name")
        fields = {each: plain(value) for each, value in item.items() if each not in _KEY}
        return Record("" if name == _UNNAMED else name, fields)

    def _has_expired(self, item: Item) -> bool:
        return 0 < expiry_ms(item) <= self._clock()
