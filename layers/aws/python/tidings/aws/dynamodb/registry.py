"""Who is registered, on DynamoDB in the table of connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import text, text_of
from tidings.aws.dynamodb.items.listeners import registration as entries
from tidings.aws.dynamodb.items.listeners.connection import SAFETY_MS
from tidings.aws.dynamodb.transport.queries import query
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.aws.runtime.clock import now_ms
from tidings.core.effects import Clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.triton.registration import Listener, Registered


class DynamoDBRegistry:
    """Implements `Registry`."""

    def __init__(self, client: DynamoDBClient, table: str, clock: Clock = now_ms) -> None:
        self._client, self._table, self._clock = client, table, clock

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        expires_ms = self._clock() + SAFETY_MS
        replaced = set()
        for kind in listener.kinds:
            item = entries.encode(feed, connection_id, listener, kind, expires_ms=expires_ms)
            with translated():
                answer = self._client.put_item(
                    TableName=self._table, Item=item, ReturnValues="ALL_OLD"
                )
            replaced.add(text_of(answer.get("Attributes", {}), "connection"))
        return sorted(replaced - {"", connection_id})

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        for kind in listener.kinds:
            self._take_out(feed, connection_id, listener.instance, kind.resource)

    def _take_out(self, feed: str, connection_id: str, instance: str, resource: str) -> None:
        try:
            with translated():
                self._client.delete_item(
                    TableName=self._table,
                    Key=entries.key(feed, instance, resource),
                    ConditionExpression="#connection = :connection",
                    ExpressionAttributeNames={"#connection": "connection"},
                    ExpressionAttributeValues={":connection": text(connection_id)},
                )
        except ConditionFailed:
            return  # it is another connection's by now, or nobody's

    def registered(self, feed: str) -> Sequence[Registered]:
        found = query(self._client, self._table, text(entries.kind(feed)))
        return [entries.decode(item) for item in found]
