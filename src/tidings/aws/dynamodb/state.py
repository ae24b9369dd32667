"""
The state: `limits.BUCKETS` partitions per feed.

A row, the latest operation of one object: `<feed>#<bucket in 2 hex digits>`, object key. (`page`,
`slot`) is its position, `at` the commit time of its page in ms. Only a deleted object expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, expiry, expiry_ms, number, text, text_of
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.aws.runtime.clock import sleep_ms
from tidings.aws.runtime.thread_pool import Threads
from tidings.core import limits
from tidings.core.effects import Sleep
from tidings.core.state.rows import ABSENT, NOTHING, Lines, Overwritten, Row, bucket_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef

    from tidings.core.state.rows import Difference


_NUMBERS = ("page", "slot", "at")
ROW_ATTRIBUTES = (*_NUMBERS, "line", "expires")  # in addition to the key


def row_bucket(feed: str, number: int) -> str:
    return f"{feed}#{number:02x}"


def row_key(feed: str, object_key: str) -> Item:
    return row_key_in(feed, bucket_of(object_key), object_key)


def row_key_in(feed: str, bucket_number: int, object_key: str) -> Item:
    """Return the key of a row found in a bucket, even if it is not its own bucket."""
    return {"bucket": text(row_bucket(feed, bucket_number)), "key": text(object_key)}


def encode_row(feed: str, row: Row) -> Item:
    return {**row_key(feed, row.key), **row_values(row)}


def row_values(row: Row) -> Item:
    """Return the attributes except the key, without those that the row lacks."""
    attributes = {
        "page": number(row.page),
        "slot": number(row.slot),
        "at": number(row.at_ms),
        "line": text(row.line),
        **expiry(row.expires_ms),
    }
    if row.whole:
        return attributes
    return {
        name: each for name, each in attributes.items() if each not in (number(ABSENT), text(""))
    }


def decode_row(item: Item) -> Row:
    try:
        return Row(
            item["key"]["S"],
            int(item["page"]["N"]),
            int(item["slot"]["N"]),
            int(item["at"]["N"]),
            item["line"]["S"],
            expiry_ms(item),
        )
    except KeyError:
        return _not_whole(item)


def decode_overwritten(item: Item) -> Overwritten | None:
    """Decode the replaced *item*, empty for none; return None if it lacks its place."""
    if not item:
        return NOTHING
    if "page" not in item or "slot" not in item:
        return None
    return Overwritten(int(item["page"]["N"]), int(item["slot"]["N"]), "expires" not in item)


def _not_whole(item: Item) -> Row:
    """Decode an item that lacks required attributes."""
    page, slot, at = (int(item[name]["N"]) if name in item else ABSENT for name in _NUMBERS)
    return Row(item["key"]["S"], page, slot, at, text_of(item, "line"), expiry_ms(item))


# The attributes that readers request: each costs every reader of every row.
_ROW = "#key, #page, #slot, #at, #line, #expires"
_REMOVERS = 8  # threads; each sends one conditional delete at a time
_OLDER = "attribute_not_exists(#page) OR #page < :page OR (#page = :page AND #slot < :slot)"


class DynamoDBState:
    """Implements `StateStore`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._batches = Batches(client, table, sleep)
        self._puts = Puts(client, table, sleep)
        self._threads = Threads(_REMOVERS)

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        replaced = self._puts.replaced([_newer(encode_row(feed, each)) for each in rows])
        return [None if item is None else decode_overwritten(item) for item in replaced]

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        answer = self._query(feed, bucket, after, _ROW)
        return [decode_row(item) for item in answer["Items"]]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        answer = self._query(feed, bucket, after, "#line")
        last: Item = answer.get("LastEvaluatedKey", {})
        return Lines([item["line"]["S"] for item in answer["Items"]], text_of(last, "key") or None)

    def _query(self, feed: str, bucket: int, after: str | None, fields: str) -> QueryOutputTypeDef:
        values = {":bucket": text(row_bucket(feed, bucket))}
        condition = "#bucket = :bucket"
        if after is not None:
            values[":after"] = text(after)
            condition += " AND #key > :after"
        return self._table.page(condition, values, fields, Limit=limits.READ_ITEMS_MAX)

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        items = self._batches.get([row_key(feed, key) for key in keys])
        return [decode_row(item) for item in items]

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        puts: dict[int, Put] = {}
        gone: list[int] = []
        for at, each in enumerate(differences):
            if each.wanted is None:
                gone.append(at)
            else:
                puts[at] = Put(encode_row(feed, each.wanted), _stands(each.stored))
        stands = dict(zip(puts, self._puts(list(puts.values())), strict=True))

        def remove(at: int) -> None:
            stands[at] = self._removed(feed, differences[at])

        self._threads(remove, gone)
        return [stands[at] for at in range(len(differences))]

    def _removed(self, feed: str, difference: Difference) -> bool:
        key, before = (
            row_key_in(feed, difference.bucket, difference.key),
            _stands(difference.stored),
        )
        try:
            self._table.delete(key, before.expression, before.values)
        except ConditionFailed as failed:
            return not failed.item  # deleted by another process, or by our first attempt
        return True


def _newer(item: Item) -> Put:
    """
    Return a put over an older item or none, so that a late request never restores an old value.
    """
    values = {":page": item["page"], ":slot": item["slot"]}
    return Put(item, Condition(_OLDER, values))


def _stands(before: Row | None) -> Condition:
    """Return the condition that the item equals *before* in all attributes; None: is missing."""
    if before is None:
        return Condition("attribute_not_exists(#key)")
    values = row_values(before)
    parts = [
        f"#{name} = :{name}" if name in values else f"attribute_not_exists(#{name})"
        for name in ROW_ATTRIBUTES
    ]
    return Condition(" AND ".join(parts), {f":{name}": value for name, value in values.items()})
