"""
What became of requests with an Idempotency-Key, on DynamoDB in the control table.

Key: `claim#<feed>`, the key. Its expiry also decides whether it counts, since DynamoDB's TTL
takes its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    expiry_ms,
    number,
    number_of,
    text,
    text_of,
)
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core.log.idempotency import Claim

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(f"claim#{feed}"), "name": text(name)}


def encode(feed: str, claim: Claim) -> Item:
    return {
        **item_key(feed, claim.key),
        "fingerprint": text(claim.fingerprint),
        "append": text(claim.append_id),
        "page": number(claim.page),
        **expiry(claim.expires_ms),
    }


def decode(item: Item) -> Claim:
    return Claim(
        key=text_of(item, "name"),
        fingerprint=text_of(item, "fingerprint"),
        append_id=text_of(item, "append"),
        page=number_of(item, "page"),
        expires_ms=expiry_ms(item),
    )


class DynamoDBClaims:
    """Implements `ClaimStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        item = self._table.get(item_key(feed, key))
        claim = decode(item) if item else None
        return claim if claim and claim.expires_ms > now_ms else None

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        free = "attribute_not_exists(#expires) OR #expires <= :now"
        return self._put(feed, claim, free, {":now": number(now_ms // 1000)})

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        ours = "attribute_not_exists(#append) OR (#append = :append AND #page = :page)"
        values = {":append": text(claim.append_id), ":page": number(claim.page)}
        return self._put(feed, replace(claim, page=page), ours, values)

    def _put(self, feed: str, claim: Claim, condition: str, values: Item) -> Claim:
        try:
            self._table.put(encode(feed, claim), condition, values)
        except ConditionFailed as failed:
            return decode(failed.item)
        return claim
