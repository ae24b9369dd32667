"""The outbox on DynamoDB.

The partition key is the name of the feed, and the sort key is the id of the message. The id begins
with the time, so that a query returns the messages in order. Producers write messages with
`tidings.client.publish_with`; they know the name of a feed, but not its key. So messages that were
left when a feed was deleted belong to the feed that is created next under the name. A message is
removed when it is in the log. A message that was refused is stored under `refused#<name>`, with the
reason, until an operator handles it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.clients import translate_errors
from tidings.aws.dynamodb.attributes import Item, text, text_of
from tidings.aws.dynamodb.table import TableStore, expressions
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.model.feeds import public_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient


_REFUSED = "refused#"
_SCANNED = 100  # messages of a scan: at most some 10 read units, if all were refused


def item_key(partition: str, message_id: str) -> Item:
    return {"feed": text(partition), "id": text(message_id)}


def encode(partition: str, message: OutboxMessage) -> Item:
    return {
        **item_key(partition, message.id),
        "kind": text(message.kind),
        "body": text(message.body),
    }


def decode(item: Item) -> OutboxMessage:
    return OutboxMessage(text_of(item, "id"), text_of(item, "kind"), text_of(item, "body"))


class DynamoDBOutbox(TableStore):
    """Implements `Outbox`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        super().__init__(client, table)
        self._place: Item = {}  # where the next scan begins

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        answer = self._table.page("#feed = :feed", {":feed": text(public_name(feed))})
        return [decode(item) for item in answer["Items"]]

    def waiting(self) -> set[str]:
        """Return names of feeds with pending messages, from a few messages of the table.

        Usually the table has only a few messages, which were refused. Otherwise the next call
        continues after them. The read is eventually consistent.
        """
        params = expressions(ProjectionExpression="#feed, #id")
        if self._place:
            params["ExclusiveStartKey"] = self._place
        with translate_errors():
            answer = self._table.client.scan(TableName=self._table.name, Limit=_SCANNED, **params)
        self._place = answer.get("LastEvaluatedKey", {})
        names = {text_of(item, "feed") for item in answer["Items"]}
        return {name for name in names if not name.startswith(_REFUSED)}

    def done(self, feed: str, message: OutboxMessage) -> None:
        self._table.delete(item_key(public_name(feed), message.id))

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Store the refused message, then remove the original.

        After a crash in between, the next run repeats both steps.
        """
        self._table.put({**encode(_REFUSED + public_name(feed), message), "reason": text(reason)})
        self.done(feed, message)
