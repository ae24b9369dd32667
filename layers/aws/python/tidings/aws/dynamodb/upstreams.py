"""The passwords that chained feeds read their upstreams with, in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import text_of
from tidings.aws.dynamodb.items.replication import upstream
from tidings.aws.dynamodb.transport.table import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBUpstreams:
    """Told to nobody but the relay that sends it."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def password(self, feed: str) -> str:
        """Empty where none was set."""
        return text_of(self._table.get(upstream.key(feed)) or {}, "password")

    def keep(self, feed: str, password: str) -> None:
        """Nothing is sent any more where it is empty."""
        self._table.put(upstream.encode(feed, password))
