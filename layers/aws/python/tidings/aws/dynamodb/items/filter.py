"""
A filter as an attribute of a connection, change or watch.

JSON in ASCII, so that any string a client may send can be stored; none where everything is
wanted.
"""

from __future__ import annotations

import json
from typing import Any

from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.core.model.filters import EVERYTHING, Filter

_NAME = "filter"


def encode(wanted: Filter) -> Item:
    given: dict[str, Any] = {**wanted.values()}
    if wanted.leave:
        given["leave"] = True
    if wanted.veiled:
        given["veiled"] = True
    if wanted.kinds is not None:
        given["kinds"] = sorted(wanted.kinds)
    return {_NAME: text(json.dumps(given, separators=(",", ":")))} if given else {}


def decode(item: Item) -> Filter:
    if _NAME not in item:
        return EVERYTHING
    given = json.loads(item[_NAME]["S"])
    leave, veiled = given.pop("leave", False), given.pop("veiled", False)
    if "kinds" in given:
        given["kinds"] = map(tuple, given["kinds"])
    sets = {name: frozenset(values) for name, values in given.items()}
    return Filter(**sets, leave=leave, veiled=veiled)
