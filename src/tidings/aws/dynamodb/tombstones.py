"""
The lifetime of the tombstones of each feed, on DynamoDB in the control table.

Key: `remembered#<feed>`, `-`. The fields are those of `tombstones.Remembered`.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import Item, number, number_of, text
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core.state.tombstones import Remembered

FIELDS = ("life_ms", "least_ms", "since_ms")
_SET = ", ".join(f"#{name} = :{name}" for name in FIELDS)
_STANDS = " AND ".join(f"#{name} = :old_{name}" for name in FIELDS)
_NEW = f"attribute_not_exists(#{FIELDS[0]})"


def item_key(feed: str) -> Item:
    return {"kind": text(f"remembered#{feed}"), "name": text("-")}


def _fields(remembered: Remembered, prefix: str) -> Item:
    """Return the fields as values of an expression, with *prefix* before their names."""
    return {f"{prefix}{name}": number(getattr(remembered, name)) for name in FIELDS}


def decode(item: Item) -> Remembered:
    return Remembered(*(number_of(item, name) for name in FIELDS))


class DynamoDBTombstones(TableStore):
    """Implements `TombstoneStore`."""

    def remembered(self, feed: str) -> Remembered | None:
        item = self._table.get(item_key(feed))
        return decode(item) if item else None

    def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
        given = _fields(new, ":")
        if old is not None:
            given |= _fields(old, ":old_")
        try:
            condition = _STANDS if old is not None else _NEW
            self._table.update(item_key(feed), f"SET {_SET}", given, condition)
        except ConditionFailed:
            return self.remembered(feed) == new  # our own write, if its answer was lost
        return True
