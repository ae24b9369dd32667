"""
Removed parents on DynamoDB, in the state table, in a separate partition of each feed.

Key: `<feed>#left`, page number in 10 hex digits. `body` is JSON (S) or deflated JSON (B). It
expires at the expiry that the page had when this was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, body, body_of, expiry, text
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.clock import sleep_ms
from tidings.core import limits
from tidings.core.state.removed_parents import RemovedParents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


def partition(feed: str) -> str:
    return f"{feed}#left"


def page_key(page: int) -> str:
    return f"{page:010x}"


def encode(feed: str, departures: RemovedParents) -> Item:
    return {
        "bucket": text(partition(feed)),
        "key": text(page_key(departures.page)),
        "body": body(departures.body),
        **expiry(departures.expires_ms),
    }


def decode(item: Item) -> RemovedParents:
    return RemovedParents(int(item["key"]["S"], 16), body_of(item["body"]))


_NEW = Condition("attribute_not_exists(#key)")


class DynamoDBRemovedParents:
    """Implements `RemovedParentsStore`. *table* is the state table."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)
        self._puts = Puts(client, table, sleep_ms)

    def write(self, feed: str, removed: Sequence[RemovedParents]) -> None:
        self._puts([Put(encode(feed, each), _NEW) for each in removed])

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        values = {
            ":bucket": text(partition(feed)),
            ":first": text(page_key(first)),
            ":last": text(page_key(last)),
        }
        between = "#bucket = :bucket AND #key BETWEEN :first AND :last"
        items = self._table.items(between, values, "#key, #body", Limit=limits.READ_ITEMS_MAX)
        return [decode(item) for item in items]
