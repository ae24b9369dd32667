"""
head: the last page number taken of a feed, a counter.

Key: `head#<feed>`, `-`. It only ever grows; without it the feed is new. `operations` counts
what numbers were taken for, in the same write. No number is taken where there is a `successor`.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number_of, text, text_of
from tidings.core.counters import Taken


def key(feed: str) -> Item:
    return {"kind": text(f"head#{feed}"), "name": text("-")}


def decode(item: Item) -> int:
    """0 where there is no item."""
    return number_of(item, "page")


def taken(item: Item) -> Taken:
    """All of it, for reports."""
    return Taken(decode(item), number_of(item, "operations"), text_of(item, "successor"))
