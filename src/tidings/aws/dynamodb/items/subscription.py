"""
watch: a live subscription, filed under one of the keys of its filter.

Key: `watch#<lane>`, filter key NUL connection id: all subscriptions of a key lie side by side,
and no key is the beginning of another, because none holds a NUL. Removed with the
subscription; should that be missed, it expires like the connection.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items import revocation
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
from tidings.core.websocket.connections import Subscription

_LAYOUT = Layout(
    Subscription, filter=FILTER, encoding=TEXT.sparse, since=NUMBER, traced=FLAG.sparse
)


def kind(lane: str) -> str:
    return f"watch#{lane}"


def prefix(filter_key: str) -> str:
    """
    What the names of all watches under *filter_key* begin with.

    A lone surrogate, which no store takes and no operation holds, becomes a question mark:
    a watch may be found that does not match, never the other way round.
    """
    return filter_key.encode("utf-8", "replace").decode() + "\0"


def key(lane: str, filter_key: str, connection_id: str) -> Item:
    return {"kind": text(kind(lane)), "name": text(prefix(filter_key) + connection_id)}


def encode(lane: str, filter_key: str, watch: Subscription, *, expires_ms: int) -> Item:
    return {
        **key(lane, filter_key, watch.connection_id),
        **_LAYOUT.encode(watch),
        **revocation.encode(watch.admission),
        **expiry(expires_ms),
    }


def decode(item: Item) -> Subscription:
    _, _, connection_id = text_of(item, "name").partition("\0")
    admission = revocation.decode(item)
    return _LAYOUT.decode(item, connection_id=connection_id, admission=admission)
