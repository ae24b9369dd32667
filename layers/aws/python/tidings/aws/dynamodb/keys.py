"""The keys of feeds, on DynamoDB in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import key as keys
from tidings.aws.dynamodb.items.attributes import expiry, number, number_of, text
from tidings.aws.dynamodb.transport.table import Table
from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.auth.keys import Key


class DynamoDBKeys:
    """Implements `Keys`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def key(self, feed: str, name: str) -> Key | None:
        """At half price; what is not there is asked for again in earnest: it may be new."""
        return self._read(feed, name, consistent=False) or self._read(feed, name, consistent=True)

    def keys(self, feed: str) -> Iterator[Key]:
        yield from map(keys.decode, self._table.of_kind(keys.kind(feed)))

    def save(self, feed: str, key: Key) -> bool:
        item = keys.encode(feed, replace(key, version=key.version + 1))
        return self._table.put_over(item, key.version, may_be_new=key.version == 0)

    def _read(self, feed: str, name: str, *, consistent: bool) -> Key | None:
        item = self._table.get(keys.key(feed, name), consistent=consistent)
        return keys.decode(item) if item else None


class DynamoDBKeyHolds:
    """Implements `KeyHolds`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def hold(self, feed: str, who: str, name: str, *, until_ms: int, now_ms: int) -> int:
        key = keys.hold_key(feed, who, name, until_ms)
        self._table.update(
            key, "SET #expires = :expires", {":expires": expiry(until_ms)["expires"]}
        )
        later = {
            ":kind": text(keys.hold_kind(feed, who)),
            ":now": text(keys.hold_name(now_ms + 1)),
        }
        return self._table.page("#kind = :kind AND #name > :now", later, Select="COUNT")["Count"]

    def let_go(self, feed: str, who: str, name: str, until_ms: int) -> None:
        self._table.delete(keys.hold_key(feed, who, name, until_ms))


class DynamoDBKeyCounts:
    """Implements `KeyCounts`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        ends_ms = (window + 1) * limits.KEY_WINDOW_MS + limits.KEY_COUNT_MS
        values = {":requests": number(requests), ":expires": expiry(ends_ms)["expires"]}
        counted = self._table.update(
            keys.count_key(feed, name, window),
            "ADD #requests :requests SET #expires = :expires",
            values,
            returns="UPDATED_NEW",
        )
        return number_of(counted, "requests")
