"""
The passwords that chained feeds read their upstreams with, in the control table.

Key: `upstream#<feed>`, `-`. It has to be sent, so it is kept as it is; the table is encrypted,
and no route and no command tells it.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import Item, text, text_of
from tidings.aws.dynamodb.transport.table import TableStore


def item_key(feed: str) -> Item:
    return {"kind": text(f"upstream#{feed}"), "name": text("-")}


class DynamoDBUpstreams(TableStore):
    """Told to nobody but the relay that sends it."""

    def password(self, feed: str) -> str:
        """Empty where none was set."""
        return text_of(self._table.get(item_key(feed)) or {}, "password")

    def keep(self, feed: str, password: str) -> None:
        """Nothing is sent any more where it is empty."""
        self._table.put({**item_key(feed), "password": text(password)})
