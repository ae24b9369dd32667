"""The feeds of the stage `local`, in its control table, for commands with `--endpoint-url`.

The key is `served`, `-`. The process that creates the tables writes this item. A stage on AWS has
outputs of its stack instead. `sources` is the value of TIDINGS_SOURCES; it is left out if no feed
is chained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, text, text_of, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterable


def served_key() -> Item:
    return {"kind": text("served"), "name": text("-")}


def encode_served(feeds: Iterable[str], sources: str = "") -> Item:
    return {
        **served_key(),
        "feeds": text(",".join(sorted(feeds))),
        **without_empty({"sources": sources}),
    }


def served_feeds(item: Item) -> frozenset[str]:
    """Return the names of the feeds; no names if *item* is empty."""
    return frozenset(text_of(item, "feeds").split(",")) - {""}


def served_sources(item: Item) -> str:
    return text_of(item, "sources")
