"""Profiles, operators' documents and the feeds of a twin, on DynamoDB, in the control table.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A profile, the settings of a feed: `profile#<feed>`, `-`. Fields with their default values are left
out. If the item is missing, the feed has the default profile. Passwords are stored as hashes.

An operator's document: `sheet#<feed>`, name. An empty `text` is left out.

The feeds of a twin, for commands that only know the address of its tables: `served`, `-`. The twin
writes this item whenever it starts. A stage on AWS has outputs of its stack instead. `sources` is
the value of TIDINGS_SOURCES; it is left out if no feed is chained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb import due
from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Codec,
    Item,
    Layout,
    as_text,
    number,
    number_of,
    text,
    text_of,
    tuple_codec,
    without_empty,
)
from tidings.aws.dynamodb.table import TableStore
from tidings.core.settings.documents import SETTINGS
from tidings.core.settings.profiles import Profile, next_version
from tidings.core.settings.values import Ended, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.changeagent.documents import OperatorDocument
    from tidings.core.settings.documents import Setting


def _write_ended(ended: Ended) -> str:
    """Encode *ended* as text, at half the size of a map: a profile may have a thousand entries."""
    return f"{ended.key} {ended.noted_ms} {ended.from_ms}"


def _read_ended(text_: str) -> Ended:
    key, noted_ms, from_ms = text_.split()
    return Ended(key, int(noted_ms), int(from_ms))


def _write_range(lost: tuple[int, int]) -> str:
    return f"{lost[0]}-{lost[1]}"


def _read_range(text_: str) -> tuple[int, int]:
    first, last = text_.split("-")
    return int(first), int(last)


_RESOURCES = tuple_codec(Layout(Resource, name=TEXT, subs=TEXTS, route=TEXT).in_map())
_CODECS = {"string": TEXT, "boolean": FLAG, "integer": NUMBER, "array": _RESOURCES}


def _codec(setting: Setting) -> Codec:
    codec, default = _CODECS[setting.schema["type"]], getattr(Profile(), setting.field)
    return Codec(codec.write, codec.read, default, is_sparse=True, field=setting.field)


_PROFILE = Layout(
    Profile,
    read=TEXTS.sparse.of("read_passwords"),
    ingest=TEXTS.sparse.of("ingest_passwords"),
    ended=tuple_codec(as_text(_write_ended, _read_ended)).sparse,
    lost=tuple_codec(as_text(_write_range, _read_range)).sparse,
    closed=FLAG.sparse,
    version=NUMBER,
    **{each.name.removesuffix("_days"): _codec(each) for each in SETTINGS.values()},
)


def profile_key(feed: str) -> Item:
    return {"kind": text(f"profile#{feed}"), "name": text("-")}


def encode_profile(feed: str, profile: Profile) -> Item:
    return {**profile_key(feed), **_PROFILE.encode(profile)}


def decode_profile(item: Item) -> Profile:
    """Return the profile in *item*; the default profile if *item* is empty."""
    return _PROFILE.decode(item)


class DynamoDBProfiles(TableStore):
    """Implements `ProfileStore`."""

    def profile(self, feed: str) -> Profile:
        return decode_profile(self._table.get(profile_key(feed)) or {})

    def save(self, feed: str, profile: Profile) -> bool:
        due.mark(self._table, feed)
        item = encode_profile(feed, next_version(profile))
        return self._table.put_over(item, profile.version, may_be_new=profile.version == 0)


def document_key(feed: str, name: str) -> Item:
    return {"kind": text(f"sheet#{feed}"), "name": text(name)}


def encode_document(feed: str, name: str, document: OperatorDocument) -> Item:
    version = {"version": number(document.version)}
    return {**document_key(feed, name), **without_empty({"text": document.text}), **version}


def decode_document(item: Item) -> OperatorDocument:
    """Return the document in *item*; an empty document if *item* is empty."""
    from tidings.core.changeagent.documents import OperatorDocument  # few functions need it

    return OperatorDocument(text_of(item, "text"), number_of(item, "version"))


class DynamoDBOperatorDocuments(TableStore):
    """Implements `OperatorDocuments`."""

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return decode_document(self._table.get(document_key(feed, name)) or {})

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        due.mark(self._table, feed)
        version = operator_document.version
        item = encode_document(feed, name, replace(operator_document, version=version + 1))
        return self._table.put_over(item, version, may_be_new=version == 0)


def served_key() -> Item:
    return {"kind": text("served"), "name": text("-")}


def encode_served(feeds: Iterable[str], sources: str = "") -> Item:
    return {
        **served_key(),
        "feeds": text(",".join(sorted(feeds))),
        **without_empty({"sources": sources}),
    }


def served_feeds(item: Item) -> frozenset[str]:
    """Return the names of a twin's feeds; no names if *item* is empty."""
    return frozenset(text_of(item, "feeds").split(",")) - {""}


def served_sources(item: Item) -> str:
    return text_of(item, "sources")
