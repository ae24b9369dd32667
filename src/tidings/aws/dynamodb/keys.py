"""The keys of feeds, request counts and open streams, on DynamoDB, in the control table.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A key: `key#<feed>`, id. Only a digest of the secret is stored. A key that has ended is kept for
`limits.KEY_KEPT_MS`, so that it can be listed.

A count of requests: `keycount#<feed>`, id of the key `#` window number.

An open stream: `keyhold#<feed>#<principal>`, expiry in ms with 14 digits `-` name. A query that
starts at the current time skips the streams that have expired.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import (
    NUMBER,
    TEXT,
    TEXTS,
    Codec,
    Item,
    Layout,
    expiry,
    number,
    number_of,
    text,
    text_of,
    texts,
)
from tidings.aws.dynamodb.filters import FILTER
from tidings.aws.dynamodb.table import TableStore
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAYOUT = Layout(
    Key,
    digest=TEXT,
    roles=Codec(
        lambda roles: texts(sorted(role.value for role in roles)),
        lambda value: frozenset(Role(each["S"]) for each in value["L"]),
        None,
    ),
    filter=FILTER.of("bound"),
    until=NUMBER.sparse.of("expires_ms"),
    rate=NUMBER.sparse,
    streams=NUMBER.sparse,
    revoked=NUMBER.sparse.of("revoked_ms"),
    label=TEXT.sparse,
    by=TEXT.sparse.of("made_by"),
    successor=TEXT.sparse,
    made=NUMBER.of("made_ms"),
    version=NUMBER,
    feeds=TEXTS.sparse,
)


def item_kind(feed: str) -> str:
    return f"key#{feed}"


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(item_kind(feed)), "name": text(name)}


def encode(feed: str, key: Key) -> Item:
    kept_until_ms = key.ended_ms + limits.KEY_KEPT_MS if key.ended_ms else 0
    return {**item_key(feed, key.id), **_LAYOUT.encode(key), **expiry(kept_until_ms)}


def decode(item: Item) -> Key:
    return _LAYOUT.decode(item, id=text_of(item, "name"))


class DynamoDBKeys(TableStore):
    """Implements `KeyStore`."""

    def key(self, feed: str, name: str) -> Key | None:
        """Return the key. A read with eventual consistency has half the price.

        If this read finds no key, read again with strong consistency, because the key may be new.
        """
        return self._read(feed, name, consistent=False) or self._read(feed, name, consistent=True)

    def keys(self, feed: str) -> Iterator[Key]:
        yield from map(decode, self._table.of_kind(item_kind(feed)))

    def save(self, feed: str, key: Key) -> bool:
        item = encode(feed, replace(key, version=key.version + 1))
        return self._table.put_over(item, key.version, may_be_new=key.version == 0)

    def _read(self, feed: str, name: str, *, consistent: bool) -> Key | None:
        item = self._table.get(item_key(feed, name), consistent=consistent)
        return decode(item) if item else None


def hold_kind(feed: str, principal: str) -> str:
    return f"keyhold#{feed}#{principal}"


def hold_name(until_ms: int, name: str = "") -> str:
    return f"{until_ms:014d}-{name}"


def hold_key(feed: str, principal: str, name: str, until_ms: int) -> Item:
    return {"kind": text(hold_kind(feed, principal)), "name": text(hold_name(until_ms, name))}


class DynamoDBKeyUsage(TableStore):
    """Implements `KeyUsage`."""

    def hold(self, feed: str, principal: str, name: str, *, until_ms: int, now_ms: int) -> int:
        key = hold_key(feed, principal, name, until_ms)
        self._table.update(
            key, "SET #expires = :expires", {":expires": expiry(until_ms)["expires"]}
        )
        later = {":kind": text(hold_kind(feed, principal)), ":now": text(hold_name(now_ms + 1))}
        return self._table.page("#kind = :kind AND #name > :now", later, Select="COUNT")["Count"]

    def release(self, feed: str, principal: str, name: str, until_ms: int) -> None:
        self._table.delete(hold_key(feed, principal, name, until_ms))

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        ends_ms = (window + 1) * limits.KEY_WINDOW_MS + limits.KEY_COUNT_MS
        values = {":requests": number(requests), ":expires": expiry(ends_ms)["expires"]}
        counted = self._table.update(
            {"kind": text(f"keycount#{feed}"), "name": text(f"{name}#{window}")},
            "ADD #requests :requests SET #expires = :expires",
            values,
            returns="UPDATED_NEW",
        )
        return number_of(counted, "requests")
