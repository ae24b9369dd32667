"""
change: a subscription on its way to the push follower.

Key: `inbox#<feed>`, connection id. Removed once it is applied; should that be missed, it
expires like the connection.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items import filter
from tidings.aws.dynamodb.items.attributes import Item, expiry, number, number_of, text, text_of
from tidings.core.websocket.connections import Change


def kind(feed: str) -> str:
    return f"inbox#{feed}"


def key(feed: str, connection_id: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(connection_id)}


def encode(feed: str, change: Change, *, expires_ms: int) -> Item:
    return {
        **key(feed, change.connection_id),
        "joins": {"BOOL": change.joins},
        **filter.encode(change.filter),
        "since": number(change.since),
        "token": text(change.token),
        **expiry(expires_ms),
    }


def decode(item: Item) -> Change:
    return Change(
        connection_id=text_of(item, "name"),
        joins=item["joins"]["BOOL"],
        filter=filter.decode(item),
        since=number_of(item, "since"),
        token=text_of(item, "token"),
    )
