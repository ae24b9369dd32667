"""Who is registered, on DynamoDB in the table of connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import text, text_of
from tidings.aws.dynamodb.items.listeners import registration as entries
from tidings.aws.dynamodb.items.listeners.connection import SAFETY_MS
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.aws.runtime.clock import now_ms
from tidings.core.effects import Clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.triton.registration import Listener, Registered


class DynamoDBRegistry:
    """Implements `Registry`."""

    def __init__(self, client: DynamoDBClient, table: str, clock: Clock = now_ms) -> None:
        self._table, self._clock = Table(client, table), clock

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        expires_ms = self._clock() + SAFETY_MS
        replaced = set()
        for kind in listener.kinds:
            item = entries.encode(feed, connection_id, listener, kind, expires_ms=expires_ms)
            replaced.add(text_of(self._table.put(item, returns="ALL_OLD"), "connection"))
        return sorted(replaced - {"", connection_id})

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        for kind in listener.kinds:
            self._take_out(feed, connection_id, listener.instance, kind.resource)

    def _take_out(self, feed: str, connection_id: str, instance: str, resource: str) -> None:
        try:
            key = entries.key(feed, instance, resource)
            ours = {":connection": text(connection_id)}
            self._table.delete(key, "#connection = :connection", ours)
        except ConditionFailed:
            return  # it is another connection's by now, or nobody's

    def registered(self, feed: str) -> Sequence[Registered]:
        return [entries.decode(item) for item in self._table.of_kind(entries.kind(feed))]
