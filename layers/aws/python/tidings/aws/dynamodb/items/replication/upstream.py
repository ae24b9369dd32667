"""
upstream: the password with which a chained feed reads its upstream.

Key: `upstream#<feed>`, `-`. It has to be sent, so it is kept as it is; the table is encrypted,
and no route and no command tells it.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, text


def key(feed: str) -> Item:
    return {"kind": text(f"upstream#{feed}"), "name": text("-")}


def encode(feed: str, password: str) -> Item:
    return {**key(feed), "password": text(password)}
