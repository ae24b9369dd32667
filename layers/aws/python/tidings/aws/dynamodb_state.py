"""The state on DynamoDB: `limits.BUCKETS` partitions a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.ports import Sleep
from tidings.core.state import Row

from .clock import sleep_ms
from .items import row
from .items.attributes import Item, text
from .threads import Threads
from .weather import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

_BATCH = 25  # what BatchWriteItem takes
_WRITERS = 4  # threads; 8 gain nothing (bench/state_writes.py)
_ATTEMPTS_MAX = 8  # six seconds of refusals, within a follower's time limit
_FIRST_WAIT_MS = 50  # doubled each time

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
        self._client, self._table, self._sleep = client, table, sleep
        self._threads = Threads(_WRITERS)

    def write(self, feed: str, rows: Sequence[Row]) -> None:
        puts = [{"PutRequest": {"Item": row.encode(feed, each)}} for each in rows]
        batches = [puts[at : at + _BATCH] for at in range(0, len(puts), _BATCH)]
        if len(batches) == 1:
            self._write_batch(batches[0])
        else:
            self._threads(self._write_batch, batches)

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

    def _write_batch(self, puts: list[Item]) -> None:
        """Part of a batch may be refused for now; it is sent again after a while."""
        left = puts
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._sleep(_FIRST_WAIT_MS << (attempt - 1))
            with translated():
                answer = self._client.batch_write_item(RequestItems={self._table: left})  # type: ignore[dict-item]
            left = list(answer.get("UnprocessedItems", {}).get(self._table, []))  # type: ignore[arg-type]
            if not left:
                return
        raise Unavailable(f"{len(left)} rows of the state were refused {_ATTEMPTS_MAX} times")
