"""
The passwords that chained feeds send to their upstreams, in the control table.

Key: `upstream#<feed>`, `-`. The relay sends the password, so it is stored unhashed; the table is
encrypted, and no route or command returns it.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import Item, text, text_of
from tidings.aws.dynamodb.transport.table import TableStore


def item_key(feed: str) -> Item:
    return {"kind": text(f"upstream#{feed}"), "name": text("-")}


class DynamoDBUpstreams(TableStore):
    """The passwords of relays for their upstreams; only the relay reads them."""

    def password(self, feed: str) -> str:
        """Return the password for the upstream of *feed*; "" if none is set."""
        return text_of(self._table.get(item_key(feed)) or {}, "password")

    def keep(self, feed: str, password: str) -> None:
        """Store *password*; "" stops sending one."""
        self._table.put({**item_key(feed), "password": text(password)})
