"""Summaries of the tags of pages on DynamoDB, in the state table, in one partition for each feed.

The partition key is `<feed>#tags`. The sort key is the number of the last page in 10 hex digits.
`first` is the number of the first page, and `bits` is a Bloom filter. The item expires when the
last page expires, unless the expiry of the page is changed later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, body_of, expiry, number, number_of, text
from tidings.aws.dynamodb.table import Batches, Table
from tidings.aws.effects import sleep_ms
from tidings.core.changeagent.tag_index import Summary
from tidings.core.effects import Sleep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


def partition(feed: str) -> str:
    return f"{feed}#tags"


def page_key(page: int) -> str:
    return f"{page:010x}"


def encode(feed: str, summary: Summary) -> Item:
    return {
        "bucket": text(partition(feed)),
        "key": text(page_key(summary.last)),
        "first": number(summary.first),
        "bits": {"B": summary.bits},
        **expiry(summary.expires_ms),
    }


def decode(item: Item) -> Summary:
    bits = body_of(item["bits"])
    assert isinstance(bits, bytes)
    return Summary(number_of(item, "first"), page_of(item), bits)


def page_of(item: Item) -> int:
    return int(item["key"]["S"], 16)


class DynamoDBTags:
    """Implements `TagStore`. *table* is the state table."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._batches = Batches(client, table, sleep)

    def write(self, feed: str, summaries: Sequence[Summary]) -> None:
        self._batches.put([encode(feed, each) for each in summaries])

    def read(self, feed: str, after: int, limit: int) -> list[Summary]:
        """Read with eventual consistency, at half the price.

        If the result lacks a new summary, readers read the pages of the log instead.
        """
        bounds = {":bucket": text(partition(feed)), ":after": text(page_key(after))}
        answer = self._table.page(
            "#bucket = :bucket AND #key > :after",
            bounds,
            "#key, #first, #bits",
            consistent=False,
            Limit=limit,
        )
        return [decode(item) for item in answer["Items"]]

    def last(self, feed: str) -> int:
        bucket = {":bucket": text(partition(feed))}
        answer = self._table.page(
            "#bucket = :bucket", bucket, "#key", ScanIndexForward=False, Limit=1
        )
        return page_of(answer["Items"][0]) if answer["Items"] else 0
