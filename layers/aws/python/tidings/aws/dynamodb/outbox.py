"""The outbox on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import outbox_message as messages
from tidings.aws.dynamodb.items.attributes import text
from tidings.aws.dynamodb.transport.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.ingest.outbox import OutboxMessage


class DynamoDBOutbox:
    """Implements `Outbox`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        answer = self._table.page("#feed = :feed", {":feed": text(feed)})
        return [messages.decode(item) for item in answer["Items"]]

    def done(self, feed: str, message: OutboxMessage) -> None:
        self._table.delete(messages.key(feed, message.id))

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Before it is removed: a crash in between does it again."""
        self._table.put(messages.encode_refused(feed, message, reason))
        self.done(feed, message)
