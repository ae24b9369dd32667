"""The state on DynamoDB: `limits.BUCKETS` partitions a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.ports import Sleep
from tidings.core.state import Lines, Row

from .clock import sleep_ms
from .dynamodb_batches import Batches
from .items import row
from .items.attributes import Item, text, text_of
from .threads import Threads
from .weather import ConditionFailed, translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef
    from tidings.core.verifying import Difference

# What readers ask for: each attribute costs every reader of every row.
_ROW = {f"#{name}": name for name in ("key", "page", "slot", "at", "line", "expires")}
_LINE = {"#line": "line"}
_REPAIRERS = 8  # threads; each waits for one conditional write at a time


class DynamoDBState:
    """Implements `StateStore` and `Repairs`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._client, self._table = client, table
        self._batches = Batches(client, table, sleep)
        self._threads = Threads(_REPAIRERS)

    def write(self, feed: str, rows: Sequence[Row]) -> None:
        self._batches.put([row.encode(feed, each) for each in rows])

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        answer = self._query(feed, bucket, after, _ROW)
        return [row.decode(item) for item in answer["Items"]]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        answer = self._query(feed, bucket, after, _LINE)
        last: Item = answer.get("LastEvaluatedKey", {})
        return Lines([item["line"]["S"] for item in answer["Items"]], text_of(last, "key") or None)

    def _query(
        self, feed: str, bucket: int, after: str | None, wanted: dict[str, str]
    ) -> QueryOutputTypeDef:
        names = {"#bucket": "bucket"} | wanted
        values = {":bucket": text(row.bucket(feed, bucket))}
        condition = "#bucket = :bucket"
        if after is not None:
            names["#key"], values[":after"] = "key", text(after)
            condition += " AND #key > :after"
        with translated():
            return self._client.query(
                TableName=self._table,
                KeyConditionExpression=condition,
                ProjectionExpression=", ".join(wanted),
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                Limit=limits.READ_ITEMS_MAX,
            )

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        found = self._batches.get([row.key(feed, key) for key in keys])
        return [row.decode(item) for item in found]

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        stands = [False] * len(differences)

        def swap(number: int) -> None:
            stands[number] = self._swap(feed, differences[number])

        self._threads(swap, range(len(differences)))
        return stands

    def _swap(self, feed: str, difference: Difference) -> bool:
        key = row.key_in(feed, difference.bucket, difference.key)
        wanted = {} if difference.wanted is None else row.encode(feed, difference.wanted)
        condition = _stands(row.values(difference.found) if difference.found else None)
        try:
            with translated():
                if wanted:
                    self._client.put_item(TableName=self._table, Item=wanted, **condition)
                else:
                    self._client.delete_item(TableName=self._table, Key=key, **condition)
        except ConditionFailed as failed:
            return failed.item == wanted  # somebody was faster, or the answer to ours was lost
        return True


def _stands(values: Item | None) -> Any:
    """The condition that an item has just these attributes beside its key; None: is not there."""
    if values is None:
        parts, names = ["attribute_not_exists(#key)"], {"#key": "key"}
    else:
        names = {f"#{name}": name for name in row.ATTRIBUTES}
        parts = [
            f"#{name} = :{name}" if name in values else f"attribute_not_exists(#{name})"
            for name in row.ATTRIBUTES
        ]
    found: dict[str, Any] = {
        "ConditionExpression": " AND ".join(parts),
        "ExpressionAttributeNames": names,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if values:
        found["ExpressionAttributeValues"] = {f":{name}": values[name] for name in values}
    return found
