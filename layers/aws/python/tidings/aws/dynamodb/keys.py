"""The keys of feeds, on DynamoDB in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import key as keys
from tidings.aws.dynamodb.items.attributes import expiry, number, number_of, text
from tidings.aws.dynamodb.transport.conditional_writes import put_over
from tidings.aws.dynamodb.transport.queries import query
from tidings.aws.runtime.aws_errors import translated
from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.auth.keys import Key


class DynamoDBKeys:
    """Implements `Keys`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def key(self, feed: str, name: str) -> Key | None:
        """At half price; what is not there is asked for again in earnest: it may be new."""
        return self._read(feed, name, consistent=False) or self._read(feed, name, consistent=True)

    def keys(self, feed: str) -> Iterator[Key]:
        for item in query(self._client, self._table, text(keys.kind(feed))):
            yield keys.decode(item)

    def save(self, feed: str, key: Key) -> bool:
        item = keys.encode(feed, replace(key, version=key.version + 1))
        new = key.version == 0
        return put_over(self._client, self._table, item, key.version, may_be_new=new)

    def _read(self, feed: str, name: str, *, consistent: bool) -> Key | None:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=keys.key(feed, name), ConsistentRead=consistent
            )
        return keys.decode(answer["Item"]) if "Item" in answer else None


class DynamoDBKeyHolds:
    """Implements `KeyHolds`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def hold(self, feed: str, who: str, name: str, *, until_ms: int, now_ms: int) -> int:
        with translated():
            self._client.update_item(
                TableName=self._table,
                Key=keys.hold_key(feed, who, name, until_ms),
                UpdateExpression="SET #expires = :expires",
                ExpressionAttributeNames={"#expires": "expires"},
                ExpressionAttributeValues={":expires": expiry(until_ms)["expires"]},
            )
            answer = self._client.query(
                TableName=self._table,
                KeyConditionExpression="#kind = :kind AND #name > :now",
                ExpressionAttributeNames={"#kind": "kind", "#name": "name"},
                ExpressionAttributeValues={
                    ":kind": text(keys.hold_kind(feed, who)),
                    ":now": text(keys.hold_name(now_ms + 1)),
                },
                Select="COUNT",
                ConsistentRead=True,
            )
        return answer["Count"]

    def let_go(self, feed: str, who: str, name: str, until_ms: int) -> None:
        with translated():
            self._client.delete_item(
                TableName=self._table, Key=keys.hold_key(feed, who, name, until_ms)
            )


class DynamoDBKeyCounts:
    """Implements `KeyCounts`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        ends_ms = (window + 1) * limits.KEY_WINDOW_MS + limits.KEY_COUNT_MS
        with translated():
            answer = self._client.update_item(
                TableName=self._table,
                Key=keys.count_key(feed, name, window),
                UpdateExpression="ADD #requests :requests SET #expires = :expires",
                ExpressionAttributeNames={"#requests": "requests", "#expires": "expires"},
                ExpressionAttributeValues={
                    ":requests": number(requests),
                    ":expires": expiry(ends_ms)["expires"],
                },
                ReturnValues="UPDATED_NEW",
            )
        return number_of(answer["Attributes"], "requests")
