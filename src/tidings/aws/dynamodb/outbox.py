"""
The outbox on DynamoDB.

Key: feed, id. The id begins with the time, so that a query returns the messages in order. Producers
write messages by `tidings.client.publish_with`. A message is removed once it is in the log. A
refused message is stored under `refused#<feed>` with the reason, until an operator handles it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, text, text_of
from tidings.aws.dynamodb.table import TableStore
from tidings.core.ingest.outbox import OutboxMessage

if TYPE_CHECKING:
    from collections.abc import Sequence


def item_key(feed: str, message_id: str) -> Item:
    return {"feed": text(feed), "id": text(message_id)}


def encode(feed: str, message: OutboxMessage) -> Item:
    return {**item_key(feed, message.id), "kind": text(message.kind), "body": text(message.body)}


def decode(item: Item) -> OutboxMessage:
    return OutboxMessage(text_of(item, "id"), text_of(item, "kind"), text_of(item, "body"))


class DynamoDBOutbox(TableStore):
    """Implements `Outbox`."""

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        answer = self._table.page("#feed = :feed", {":feed": text(feed)})
        return [decode(item) for item in answer["Items"]]

    def done(self, feed: str, message: OutboxMessage) -> None:
        self._table.delete(item_key(feed, message.id))

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """
        Store the refused message, then remove the original; a crash in between repeats both.
        """
        self._table.put({**encode(f"refused#{feed}", message), "reason": text(reason)})
        self.done(feed, message)
