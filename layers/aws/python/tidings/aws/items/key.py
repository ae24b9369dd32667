"""
key: a key of a feed; and key count: how much of its rate it has used.

Key: `key#<feed>`, id. Of the secret there is a digest. Once it has ended it is kept for
`limits.KEY_KEPT_MS`, so that it can be listed.

Key of a count: `keycount#<feed>`, id `#` number of the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.access import Role
from tidings.core.keys import Key

from . import wanted
from .attributes import (
    Item,
    expiry,
    number,
    number_of,
    text,
    text_of,
    texts,
    texts_of,
    without_empty,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBERS = {"until": "expires_ms", "rate": "rate", "revoked": "revoked_ms"}


def kind(feed: str) -> str:
    return f"key#{feed}"


def key(feed: str, name: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(name)}


def count_key(feed: str, name: str, window: int) -> Item:
    return {"kind": text(f"keycount#{feed}"), "name": text(f"{name}#{window}")}


def encode(feed: str, found: Key) -> Item:
    numbers = {name: getattr(found, of) for name, of in _NUMBERS.items()}
    return {
        **key(feed, found.id),
        "digest": text(found.digest),
        "roles": texts(sorted(role.value for role in found.roles)),
        **wanted.encode(found.bound),
        **{name: number(value) for name, value in numbers.items() if value},
        **without_empty({"label": found.label, "by": found.made_by, "successor": found.successor}),
        "made": number(found.made_ms),
        "version": number(found.version),
        **expiry(found.ended_ms + limits.KEY_KEPT_MS if found.ended_ms else 0),
    }


def decode(item: Mapping[str, Any]) -> Key:
    return Key(
        id=text_of(item, "name"),
        digest=text_of(item, "digest"),
        roles=frozenset(map(Role, texts_of(item, "roles") or ())),
        bound=wanted.decode(item),
        label=text_of(item, "label"),
        made_ms=number_of(item, "made"),
        made_by=text_of(item, "by"),
        successor=text_of(item, "successor"),
        version=number_of(item, "version"),
        **{of: number_of(item, name) for name, of in _NUMBERS.items()},
    )
