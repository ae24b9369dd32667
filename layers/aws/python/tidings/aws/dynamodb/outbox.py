"""The outbox on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import outbox_message as messages
from tidings.aws.dynamodb.items.attributes import text
from tidings.aws.runtime.aws_errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.ingest.outbox import OutboxMessage


class DynamoDBOutbox:
    """Implements `Outbox`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        with translated():
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="#feed = :feed",
                ExpressionAttributeNames={"#feed": "feed"},
                ExpressionAttributeValues={":feed": text(feed)},
                ConsistentRead=True,
            )
        return [messages.decode(item) for item in answer["Items"]]

    def done(self, feed: str, message: OutboxMessage) -> None:
        with translated():
            self._client.delete_item(TableName=self._table, Key=messages.key(feed, message.id))

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Before it is removed: a crash in between does it again."""
        item = messages.encode_refused(feed, message, reason)
        with translated():
            self._client.put_item(TableName=self._table, Item=item)
        self.done(feed, message)
