"""The state on DynamoDB: `limits.BUCKETS` partitions a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.ports import Sleep
from tidings.core.state import Row

from .clock import sleep_ms
from .dynamodb_batches import Batches
from .items import row
from .items.attributes import text
from .weather import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

# Everything but the partition key and an expiry, which few rows have.
_NAMES = {
    "#bucket": "bucket",
    "#key": "key",
    "#page": "page",
    "#slot": "slot",
    "#at": "at",
    "#line": "line",
    "#expires": "expires",
}
_READ = "#key, #page, #slot, #at, #line, #expires"


class DynamoDBState:
    """Implements `StateStore`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._client, self._table = client, table
        self._batches = Batches(client, table, sleep)

    def write(self, feed: str, rows: Sequence[Row]) -> None:
        self._batches.put([row.encode(feed, each) for each in rows])

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        values = {":bucket": text(row.bucket(feed, bucket))}
        condition = "#bucket = :bucket"
        if after is not None:
            values[":after"] = text(after)
            condition += " AND #key > :after"
        with translated():
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression=condition,
                ProjectionExpression=_READ,
                ExpressionAttributeNames=_NAMES,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                Limit=limits.READ_ITEMS_MAX,
            )
        return [row.decode(item) for item in answer["Items"]]

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        found = self._batches.get([row.key(feed, key) for key in keys])
        return [row.decode(item) for item in found]
