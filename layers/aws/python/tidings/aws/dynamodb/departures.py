"""Departures on DynamoDB: beside the state, in a partition of each feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import departures
from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.runtime.aws_errors import translated
from tidings.aws.runtime.clock import sleep_ms
from tidings.core import limits
from tidings.core.effects import Sleep
from tidings.core.state.removed_parents import RemovedParents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

_FIRST = Condition("attribute_not_exists(#key)", {"#key": "key"})


class DynamoDBRemovedParents:
    """Implements `RemovedParentsStore`. *table* is that of the state."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._client, self._table = client, table
        self._puts = Puts(client, table, sleep)

    def write(self, feed: str, found: Sequence[RemovedParents]) -> None:
        self._puts([Put(departures.encode(feed, each), _FIRST) for each in found])

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        found: list[RemovedParents] = []
        start: Item = {}
        while True:
            with translated():
                answer = self._client.query(
                    TableName=self._table,
                    KeyConditionExpression="#bucket = :bucket AND #key BETWEEN :first AND :last",
                    ProjectionExpression="#key, #body",
                    ExpressionAttributeNames={"#bucket": "bucket", "#key": "key", "#body": "body"},
                    ExpressionAttributeValues={
                        ":bucket": text(departures.partition(feed)),
                        ":first": text(departures.page_key(first)),
                        ":last": text(departures.page_key(last)),
                    },
                    ConsistentRead=True,
                    Limit=limits.READ_ITEMS_MAX,
                    **start,
                )
            found += [departures.decode(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
