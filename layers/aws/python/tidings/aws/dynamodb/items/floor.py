"""
floor: the first page of a feed that is still in the log.

Key: `floor#<feed>`, `-`. It only ever grows; without it the log reaches back to page 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, number_of, text

if TYPE_CHECKING:
    from collections.abc import Mapping


def key(feed: str) -> Item:
    return {"kind": text(f"floor#{feed}"), "name": text("-")}


def decode(item: Mapping[str, Any]) -> int:
    """1 where there is no item."""
    return number_of(item, "page") or 1
