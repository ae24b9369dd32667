"""The state on DynamoDB: `limits.BUCKETS` partitions a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.ports import Sleep
from tidings.core.state import Lines, Row

from .clock import sleep_ms
from .dynamodb_batches import Batches
from .items import row
from .items.attributes import Item, text, text_of
from .weather import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef

# What readers ask for: each attribute costs every reader of every row.
_ROW = {f"#{name}": name for name in ("key", "page", "slot", "at", "line", "expires")}
_LINE = {"#line": "line"}


class DynamoDBState:
    """Implements `StateStore`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._client, self._table = client, table
        self._batches = Batches(client, table, sleep)

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
