"""Since when the deletions of feeds are remembered, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import tombstone as items
from tidings.aws.runtime.aws_errors import ConditionFailed, translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.state.tombstones import Remembered

_NAMES = {f"#{name}": name for name in items.FIELDS}
_SET = ", ".join(f"#{name} = :{name}" for name in items.FIELDS)
_STANDS = " AND ".join(f"#{name} = :old_{name}" for name in items.FIELDS)
_NEW = f"attribute_not_exists(#{items.FIELDS[0]})"


class DynamoDBTombstones:
    """Implements `TombstoneStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def remembered(self, feed: str) -> Remembered | None:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=items.key(feed), ConsistentRead=True
            )
        return items.decode(answer["Item"]) if "Item" in answer else None

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        given = items.values(new, ":")
        if old is not None:
            given |= items.values(old, ":old_")
        try:
            with translated():
                self._client.update_item(
                    TableName=self._table,
                    Key=items.key(feed),
                    UpdateExpression=f"SET {_SET}",
                    ConditionExpression=_STANDS if old is not None else _NEW,
                    ExpressionAttributeNames=_NAMES,
                    ExpressionAttributeValues=given,
                )
        except ConditionFailed:
            return self.remembered(feed) == new  # the answer to ours may have been lost
        return True
