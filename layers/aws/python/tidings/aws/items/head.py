"""
head: the last page number taken of a feed, a counter.

Key: `head#<feed>`, `-`. It only ever grows; without it the feed is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .attributes import Item, number_of, text

if TYPE_CHECKING:
    from collections.abc import Mapping


def key(feed: str) -> Item:
    return {"kind": text(f"head#{feed}"), "name": text("-")}


def decode(item: Mapping[str, Any]) -> int:
    """0 where there is no item."""
    return number_of(item, "page")
