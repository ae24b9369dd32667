"""
head: the last page number taken of a feed, a counter.

Key: `head#<feed>`, `-`. It only ever grows; without it the feed is new. `operations` counts
what numbers were taken for, in the same write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, number_of, text
from tidings.core.counters import Taken

if TYPE_CHECKING:
    from collections.abc import Mapping


def key(feed: str) -> Item:
    return {"kind": text(f"head#{feed}"), "name": text("-")}


def decode(item: Mapping[str, Any]) -> int:
    """0 where there is no item."""
    return number_of(item, "page")


def taken(item: Mapping[str, Any]) -> Taken:
    """All of it, for reports."""
    return Taken(decode(item), number_of(item, "operations"))
