"""The outbox on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import outbox_message as letters
from tidings.aws.dynamodb.items.attributes import text
from tidings.aws.runtime.aws_errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.ingest.outbox import Letter


class DynamoDBOutbox:
    """Implements `Outbox`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def pending(self, feed: str) -> Sequence[Letter]:
        with translated():
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="#feed = :feed",
                ExpressionAttributeNames={"#feed": "feed"},
                ExpressionAttributeValues={":feed": text(feed)},
                ConsistentRead=True,
            )
        return [letters.decode(item) for item in answer["Items"]]

    def done(self, feed: str, letter: Letter) -> None:
        with translated():
            self._client.delete_item(TableName=self._table, Key=letters.key(feed, letter.id))

    def put_aside(self, feed: str, letter: Letter, reason: str) -> None:
        """Before it is removed: a crash in between does it again."""
        item = letters.encode_refused(feed, letter, reason)
        with translated():
            self._client.put_item(TableName=self._table, Item=item)
        self.done(feed, letter)
