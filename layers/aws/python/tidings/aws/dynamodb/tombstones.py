"""Since when the deletions of feeds are remembered, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import tombstone as items
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.state.tombstones import Remembered

_SET = ", ".join(f"#{name} = :{name}" for name in items.FIELDS)
_STANDS = " AND ".join(f"#{name} = :old_{name}" for name in items.FIELDS)
_NEW = f"attribute_not_exists(#{items.FIELDS[0]})"


class DynamoDBTombstones:
    """Implements `TombstoneStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def remembered(self, feed: str) -> Remembered | None:
        item = self._table.get(items.key(feed))
        return items.decode(item) if item else None

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        given = items.values(new, ":")
        if old is not None:
            given |= items.values(old, ":old_")
        try:
            condition = _STANDS if old is not None else _NEW
            self._table.update(items.key(feed), f"SET {_SET}", given, condition)
        except ConditionFailed:
            return self.remembered(feed) == new  # the answer to ours may have been lost
        return True
