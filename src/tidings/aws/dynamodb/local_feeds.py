"""
served: the feeds of a twin, for commands that know nothing but where its tables are.

Key: `served`, `-`. Written whenever the twin starts. On AWS the stack's outputs say it. `sources`
is what TIDINGS_SOURCES would say of the chained ones, left out where there is none.
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
    """Empty where there is no item."""
    return frozenset(text_of(item, "feeds").split(",")) - {""}


def sources_of(item: Item) -> str:
    return text_of(item, "sources")
