"""
change: a subscription on its way to the push follower.

Key: `inbox#<lane>`, connection id, and a blank behind the id of one that moves. Removed once it is
applied; should that be missed, it expires like the connection.
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

_LAYOUT = Layout(Change, joins=FLAG, filter=FILTER, since=NUMBER, token=TEXT, moves=FLAG.sparse)
_MOVES = " "  # no connection id holds a blank


def kind(lane: str) -> str:
    return f"inbox#{lane}"


def key(lane: str, connection_id: str, *, moves: bool = False) -> Item:
    name = connection_id + _MOVES if moves else connection_id
    return {"kind": text(kind(lane)), "name": text(name)}


def encode(lane: str, change: Change, *, expires_ms: int) -> Item:
    named = key(lane, change.connection_id, moves=change.moves)
    return {**named, **_LAYOUT.encode(change), **expiry(expires_ms)}


def decode(item: Item) -> Change:
    name = text_of(item, "name")
    return _LAYOUT.decode(
        item, connection_id=name.removesuffix(_MOVES) if "moves" in item else name
    )
