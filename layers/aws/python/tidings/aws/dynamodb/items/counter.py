"""
tally: what is counted of a feed for `/status`, and who is connected.

Key: `tally#<feed>`, a name. `refused` and `served` are counters and live for ever;
`at#<place>` is a presence that counts until `until` in ms and is deleted when nobody is there,
at the latest by its expiry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import Item, number_of, text, text_of
from tidings.core.counters import Totals

if TYPE_CHECKING:
    from collections.abc import Iterable

REFUSED, SERVED = "refused", "served"
_AT = "at#"


def kind(feed: str) -> str:
    return f"tally#{feed}"


def key(feed: str, name: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(name)}


def presence(feed: str, place: str) -> Item:
    """The key of the presence at *place*."""
    return key(feed, _AT + place)


def decode(items: Iterable[Item], *, now_ms: int) -> Totals:
    """Of all items of a feed, in any order."""
    counts, clients = {REFUSED: 0, "connections": 0, "sent": 0}, 0
    for item in items:
        if not text_of(item, "name").startswith(_AT):
            counts = {name: counts[name] + number_of(item, name) for name in counts}
        elif number_of(item, "until") > now_ms:
            clients += number_of(item, "clients")
    return Totals(**counts, clients=clients)
