"""Departures on DynamoDB: beside the state, in a partition of each feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import departures
from tidings.aws.dynamodb.items.attributes import text
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.clock import sleep_ms
from tidings.core import limits
from tidings.core.effects import Sleep
from tidings.core.state.removed_parents import RemovedParents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

_NEW = Condition("attribute_not_exists(#key)")


class DynamoDBRemovedParents:
    """Implements `RemovedParentsStore`. *table* is that of the state."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._puts = Puts(client, table, sleep)

    def write(self, feed: str, removed: Sequence[RemovedParents]) -> None:
        self._puts([Put(departures.encode(feed, each), _NEW) for each in removed])

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        values = {
            ":bucket": text(departures.partition(feed)),
            ":first": text(departures.page_key(first)),
            ":last": text(departures.page_key(last)),
        }
        between = "#bucket = :bucket AND #key BETWEEN :first AND :last"
        items = self._table.items(between, values, "#key, #body", Limit=limits.READ_ITEMS_MAX)
        return [departures.decode(item) for item in items]
