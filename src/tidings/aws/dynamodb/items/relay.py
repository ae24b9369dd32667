"""
relay: how far a chained feed has come, and what its operator wants.

Key: `relay`, feed. `document` is JSON of the fields that are not as they are by themselves, so
that a version of the code that knows more of them reads what an older one wrote; `version` is
what every write is conditional on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from enum import Enum
from typing import Any

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text, text_of
from tidings.core.errors import BrokenRelay
from tidings.core.replication.relay import Condition, Copy, Counts, Relay, Wanted
from tidings.core.replication.source import Role

KIND = "relay"
_ENUMS = {"wanted": Wanted, "condition": Condition, "role": Role}
_NAMES = frozenset(each.name for each in fields(Relay)) - {"feed", "version"}


def key(feed: str) -> Item:
    return {"kind": text(KIND), "name": text(feed)}


def encode(relay: Relay) -> Item:
    values, plain = asdict(relay), asdict(Relay(relay.feed))
    document = {name: values[name] for name in sorted(_NAMES) if values[name] != plain[name]}
    return {
        **key(relay.feed),
        "document": text(json.dumps(document, default=_value, separators=(",", ":"))),
        "version": number(relay.version),
    }


def decode(item: Item) -> Relay:
    """
    Raises:
        BrokenRelay: it is none that `encode` made.
    """
    feed = text_of(item, "name")
    try:
        fields = {
            name: _read(name, value)
            for name, value in json.loads(item["document"]["S"]).items()
            if name in _NAMES
        }
        relay = Relay(feed, number_of(item, "version"), **fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BrokenRelay(feed, str(error)) from None
    _check(relay)
    return relay


def _check(relay: Relay) -> None:
    """What positions depend on: a text or a fraction would be compared, and be wrong."""
    counted = relay.version, relay.checkpoint, relay.seconds, relay.low_watermark
    if relay.version < 1 or not all(type(each) is int and each >= 0 for each in counted):
        raise BrokenRelay(relay.feed, "a position is no whole number")


def _value(member: object) -> object:
    assert isinstance(member, Enum)
    return member.value


def _read(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name == "via":
        return tuple(value)
    if name == "lost":
        return tuple((first, last) for first, last in value)
    if name == "counts":
        return Counts(**value)
    return Copy(**value) if name == "copy" and value is not None else value
