"""
The feeds of a twin, for commands that only know the address of its tables.

Key: `served`, `-`. It is written whenever the twin starts. On AWS the stack has outputs instead.
`sources` is the value of TIDINGS_SOURCES for the chained feeds, left out if no feed is chained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, text, text_of, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterable


def key() -> Item:
    return {"kind": text("served"), "name": text("-")}


def encode(feeds: Iterable[str], sources: str = "") -> Item:
    return {
        **key(),
        "feeds": text(",".join(sorted(feeds))),
        **without_empty({"sources": sources}),
    }


def decode(item: Item) -> frozenset[str]:
    """Return the names of the feeds; empty if the item is missing."""
    return frozenset(text_of(item, "feeds").split(",")) - {""}


def sources_of(item: Item) -> str:
    return text_of(item, "sources")
