"""Request counts and open streams of keys, on DynamoDB, in the control table.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A count of requests: `keycount#<feed>`, id of the key `#` window number.

An open stream: `keyhold#<feed>#<principal>`, expiry in ms with 14 digits `-` name. A query that
starts at the current time skips the streams that have expired.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import Item, expiry, number, number_of, text
from tidings.aws.dynamodb.table import TableStore
from tidings.core import limits


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
