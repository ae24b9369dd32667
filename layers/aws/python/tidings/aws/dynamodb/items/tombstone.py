"""
remembered: since when the deletions of a feed are remembered, and how long.

Key: `remembered#<feed>`, `-`. The fields are those of `tombstones.Remembered`.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text
from tidings.core.state.tombstones import Remembered

FIELDS = ("life_ms", "least_ms", "since_ms")


def key(feed: str) -> Item:
    return {"kind": text(f"remembered#{feed}"), "name": text("-")}


def values(remembered: Remembered, prefix: str) -> Item:
    """The fields by their names behind *prefix*, as an expression takes them."""
    return {f"{prefix}{name}": number(getattr(remembered, name)) for name in FIELDS}


def decode(item: Item) -> Remembered:
    return Remembered(*(number_of(item, name) for name in FIELDS))
