"""
roster: how far the sweep is with its round of all connections.

Key: `roster`, `-`. `at` is the key of the last item that was read, its `kind` and `name`; left out
at the beginning. `counted` and `told` are numbers of connections by feed. There is none before a
round first takes more than one sweep.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, number, text, text_of, without_empty
from tidings.core.websocket.roster import Round

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Item = {"kind": text("roster"), "name": text("-")}


def place(last: Item) -> str:
    """The place behind the item with the key *last*; of no key the end."""
    return json.dumps([last["kind"]["S"], last["name"]["S"]]) if last else ""


def start(place_: str) -> dict[str, Any]:
    """What makes a scan go on behind *place_*."""
    if not place_:
        return {}
    kind, name = json.loads(place_)
    return {"ExclusiveStartKey": {"kind": text(kind), "name": text(name)}}


def encode(round_: Round) -> Item:
    return {
        **KEY,
        **without_empty({"at": round_.place}),
        "counted": _numbers(round_.counted),
        "told": _numbers(round_.previous),
    }


def decode(item: Item) -> Round:
    """`Round()` where there is no item."""
    counted, previous = _numbers_of(item, "counted"), _numbers_of(item, "told")
    return Round(text_of(item, "at"), counted, previous)


def _numbers(values: Mapping[str, int]) -> Item:
    return {"M": {name: number(value) for name, value in values.items()}}


def _numbers_of(item: Item, name: str) -> dict[str, int]:
    members = item.get(name, {"M": {}})["M"]
    return {each: int(value["N"]) for each, value in members.items()}
