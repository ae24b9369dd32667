"""
The settings of feeds by their owners, on DynamoDB in the control table.

Key: `profile#<feed>`, `-`. Default values are left out, and a missing item is the default profile.
The passwords are stored as hashes.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Codec,
    Item,
    Layout,
    as_text,
    listed,
    text,
)
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.core.settings.profiles import Profile, next_version
from tidings.core.settings.resources import Resource
from tidings.core.settings.revocations import Ended


def _write_ended(ended: Ended) -> str:
    """Encode as text: half the size of a map, and there may be a thousand."""
    return f"{ended.key} {ended.noted_ms} {ended.from_ms}"


def _read_ended(text_: str) -> Ended:
    key, noted_ms, from_ms = text_.split()
    return Ended(key, int(noted_ms), int(from_ms))


def _write_range(lost: tuple[int, int]) -> str:
    return f"{lost[0]}-{lost[1]}"


def _read_range(text_: str) -> tuple[int, int]:
    first, last = text_.split("-")
    return int(first), int(last)


_LANES = Codec(NUMBER.write, NUMBER.read, Profile().push_lanes, is_sparse=True)

_LAYOUT = Layout(
    Profile,
    object_url=TEXT.sparse,
    compat=TEXT.sparse,
    leave=FLAG.sparse,
    read=TEXTS.sparse.of("read_passwords"),
    ingest=TEXTS.sparse.of("ingest_passwords"),
    resources=listed(Layout(Resource, name=TEXT, subs=TEXTS, route=TEXT).in_map()).sparse,
    max_age=NUMBER.sparse.of("max_age_s"),
    ended=listed(as_text(_write_ended, _read_ended)).sparse,
    lost=listed(as_text(_write_range, _read_range)).sparse,
    push_lanes=_LANES,
    closed=FLAG.sparse,
    version=NUMBER,
)


def item_key(feed: str) -> Item:
    return {"kind": text(f"profile#{feed}"), "name": text("-")}


def encode(feed: str, profile: Profile) -> Item:
    return {**item_key(feed), **_LAYOUT.encode(profile)}


def decode(item: Item) -> Profile:
    """Return the profile in *item*; the defaults if the item is missing."""
    return _LAYOUT.decode(item)


class DynamoDBProfiles(TableStore):
    """Implements `ProfileStore`."""

    def profile(self, feed: str) -> Profile:
        return decode(self._table.get(item_key(feed)) or {})

    def save(self, feed: str, profile: Profile) -> bool:
        item = encode(feed, next_version(profile))
        return self._table.put_over(item, profile.version, may_be_new=profile.version == 0)
