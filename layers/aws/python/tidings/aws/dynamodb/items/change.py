"""
change: a subscription on its way to the push follower.

Key: `inbox#<feed>`, connection id. Removed once it is applied; should that be missed, it
expires like the connection.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    Item,
    Layout,
    expiry,
    text,
    text_of,
)
from tidings.aws.dynamodb.items.filter import FILTER
from tidings.core.websocket.connections import Change

_LAYOUT = Layout(Change, joins=FLAG, filter=FILTER, since=NUMBER, token=TEXT)


def kind(feed: str) -> str:
    return f"inbox#{feed}"


def key(feed: str, connection_id: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(connection_id)}


def encode(feed: str, change: Change, *, expires_ms: int) -> Item:
    return {**key(feed, change.connection_id), **_LAYOUT.encode(change), **expiry(expires_ms)}


def decode(item: Item) -> Change:
    return _LAYOUT.decode(item, connection_id=text_of(item, "name"))
