"""The state on DynamoDB: `limits.BUCKETS` partitions a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import row
from tidings.aws.dynamodb.items.attributes import Item, text, text_of
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.aws.runtime.clock import sleep_ms
from tidings.aws.runtime.thread_pool import Threads
from tidings.core import limits
from tidings.core.effects import Sleep
from tidings.core.state.rows import Lines, Overwritten, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef
    from tidings.core.state.rows import Difference

# What readers ask for: each attribute costs every reader of every row.
_ROW = "#key, #page, #slot, #at, #line, #expires"
_REMOVERS = 8  # threads; each waits for one conditional delete at a time
_OLDER = "attribute_not_exists(#page) OR #page < :page OR (#page = :page AND #slot < :slot)"


class DynamoDBState:
    """Implements `StateStore`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._batches = Batches(client, table, sleep)
        self._puts = Puts(client, table, sleep)
        self._threads = Threads(_REMOVERS)

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        replaced = self._puts.replaced([_newer(row.encode(feed, each)) for each in rows])
        return [None if item is None else row.overwritten(item) for item in replaced]

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        answer = self._query(feed, bucket, after, _ROW)
        return [row.decode(item) for item in answer["Items"]]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        answer = self._query(feed, bucket, after, "#line")
        last: Item = answer.get("LastEvaluatedKey", {})
        return Lines([item["line"]["S"] for item in answer["Items"]], text_of(last, "key") or None)

    def _query(self, feed: str, bucket: int, after: str | None, fields: str) -> QueryOutputTypeDef:
        values = {":bucket": text(row.bucket(feed, bucket))}
        condition = "#bucket = :bucket"
        if after is not None:
            values[":after"] = text(after)
            condition += " AND #key > :after"
        return self._table.page(condition, values, fields, Limit=limits.READ_ITEMS_MAX)

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        items = self._batches.get([row.key(feed, key) for key in keys])
        return [row.decode(item) for item in items]

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        puts: dict[int, Put] = {}
        gone: list[int] = []
        for at, each in enumerate(differences):
            if each.wanted is None:
                gone.append(at)
            else:
                puts[at] = Put(row.encode(feed, each.wanted), _stands(each.stored))
        stands = dict(zip(puts, self._puts(list(puts.values())), strict=True))

        def remove(at: int) -> None:
            stands[at] = self._removed(feed, differences[at])

        self._threads(remove, gone)
        return [stands[at] for at in range(len(differences))]

    def _removed(self, feed: str, difference: Difference) -> bool:
        key, before = (
            row.key_in(feed, difference.bucket, difference.key),
            _stands(difference.stored),
        )
        try:
            self._table.delete(key, before.expression, before.values)
        except ConditionFailed as failed:
            return not failed.item  # somebody was faster, or the answer to ours was lost
        return True


def _newer(item: Item) -> Put:
    """Over what is older, or over nothing: whenever a request lands, it puts nothing back."""
    values = {":page": item["page"], ":slot": item["slot"]}
    return Put(item, Condition(_OLDER, values))


def _stands(before: Row | None) -> Condition:
    """An item has just the attributes of *before* beside its key; None: is not there."""
    if before is None:
        return Condition("attribute_not_exists(#key)")
    values = row.values(before)
    parts = [
        f"#{name} = :{name}" if name in values else f"attribute_not_exists(#{name})"
        for name in row.ATTRIBUTES
    ]
    return Condition(" AND ".join(parts), {f":{name}": value for name, value in values.items()})
