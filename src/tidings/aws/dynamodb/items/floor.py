"""
floor: the first page of a feed that is still in the log.

Key: `floor#<feed>`, `-`. It only ever grows; without it the log reaches back to page 1.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number_of, text


def key(feed: str) -> Item:
    return {"kind": text(f"floor#{feed}"), "name": text("-")}


def decode(item: Item) -> int:
    """1 where there is no item."""
    return number_of(item, "page") or 1
