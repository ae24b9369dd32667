"""
key: a key of a feed; and key count: how much of its rate it has used.

Key: `key#<feed>`, id. Of the secret there is a digest. Once it has ended it is kept for
`limits.KEY_KEPT_MS`, so that it can be listed.

Key of a count: `keycount#<feed>`, id `#` number of the window.

Key of a hold: `keyhold#<feed>#<who>`, when it ends in ms of 14 digits `-` name, so that those
whose time is over are not read.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items import filter
from tidings.aws.dynamodb.items.attributes import (
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
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key

_NUMBERS = {
    "until": "expires_ms",
    "rate": "rate",
    "streams": "streams",
    "revoked": "revoked_ms",
}


def kind(feed: str) -> str:
    return f"key#{feed}"


def key(feed: str, name: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(name)}


def count_key(feed: str, name: str, window: int) -> Item:
    return {"kind": text(f"keycount#{feed}"), "name": text(f"{name}#{window}")}


def hold_kind(feed: str, who: str) -> str:
    return f"keyhold#{feed}#{who}"


def hold_name(until_ms: int, name: str = "") -> str:
    return f"{until_ms:014d}-{name}"


def hold_key(feed: str, who: str, name: str, until_ms: int) -> Item:
    return {"kind": text(hold_kind(feed, who)), "name": text(hold_name(until_ms, name))}


def encode(feed: str, stored: Key) -> Item:
    numbers = {name: getattr(stored, of) for name, of in _NUMBERS.items()}
    return {
        **key(feed, stored.id),
        "digest": text(stored.digest),
        "roles": texts(sorted(role.value for role in stored.roles)),
        **filter.encode(stored.bound),
        **{name: number(value) for name, value in numbers.items() if value},
        **without_empty(
            {"label": stored.label, "by": stored.made_by, "successor": stored.successor}
        ),
        "made": number(stored.made_ms),
        "version": number(stored.version),
        **expiry(stored.ended_ms + limits.KEY_KEPT_MS if stored.ended_ms else 0),
    }


def decode(item: Item) -> Key:
    return Key(
        id=text_of(item, "name"),
        digest=text_of(item, "digest"),
        roles=frozenset(map(Role, texts_of(item, "roles") or ())),
        bound=filter.decode(item),
        label=text_of(item, "label"),
        made_ms=number_of(item, "made"),
        made_by=text_of(item, "by"),
        successor=text_of(item, "successor"),
        version=number_of(item, "version"),
        **{of: number_of(item, name) for name, of in _NUMBERS.items()},
    )
