"""Summaries of tags on DynamoDB: beside the state, in a partition of each feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import tag_summary
from tidings.aws.dynamodb.items.attributes import text
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.clock import sleep_ms
from tidings.core.changeagent.tag_index import Summary
from tidings.core.effects import Sleep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBTags:
    """Implements `TagStore`. *table* is that of the state."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._batches = Batches(client, table, sleep)

    def write(self, feed: str, summaries: Sequence[Summary]) -> None:
        self._batches.put([tag_summary.encode(feed, each) for each in summaries])

    def read(self, feed: str, after: int, limit: int) -> list[Summary]:
        """At half the price of a consistent read: what is not seen yet is read in the log."""
        bounds = {
            ":bucket": text(tag_summary.partition(feed)),
            ":after": text(tag_summary.page_key(after)),
        }
        answer = self._table.page(
            "#bucket = :bucket AND #key > :after",
            bounds,
            "#key, #first, #bits",
            consistent=False,
            Limit=limit,
        )
        return [tag_summary.decode(item) for item in answer["Items"]]

    def last(self, feed: str) -> int:
        bucket = {":bucket": text(tag_summary.partition(feed))}
        answer = self._table.page(
            "#bucket = :bucket", bucket, "#key", ScanIndexForward=False, Limit=1
        )
        return tag_summary.page_of(answer["Items"][0]) if answer["Items"] else 0
