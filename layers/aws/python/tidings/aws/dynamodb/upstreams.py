"""The passwords that chained feeds read their upstreams with, in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import text_of
from tidings.aws.dynamodb.items.replication import upstream
from tidings.aws.runtime.aws_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBUpstreams:
    """Told to nobody but the relay that sends it."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def password(self, feed: str) -> str:
        """Empty where none was set."""
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=upstream.key(feed), ConsistentRead=True
            )
        return text_of(answer.get("Item", {}), "password")

    def keep(self, feed: str, password: str) -> None:
        """Nothing is sent any more where it is empty."""
        with translated():
            self._client.put_item(TableName=self._table, Item=upstream.encode(feed, password))
