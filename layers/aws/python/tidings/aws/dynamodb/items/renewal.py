"""
renewal: how far a round of renewals of a feed's pages is.

Key: `renewal#<feed>`, `-`. `page` is the last one that was looked at, 0 behind the end of the
round; `began` is in ms.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text
from tidings.core.log.renewal import Round


def key(feed: str) -> Item:
    return {"kind": text(f"renewal#{feed}"), "name": text("-")}


def encode(round_: Round) -> Item:
    """Without its key."""
    return {"page": number(round_.page), "began": number(round_.began_ms)}


def decode(item: Item) -> Round:
    """`Round()` where there is no item."""
    return Round(number_of(item, "page"), number_of(item, "began"))
