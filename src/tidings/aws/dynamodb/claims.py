"""
The results of requests with an Idempotency-Key, on DynamoDB in the control table.

Key: `claim#<feed>`, the Idempotency-Key. Readers check the expiry, since DynamoDB's TTL deletes
items late.
"""

from __future__ import annotations

from dataclasses import replace

from tidings.aws.dynamodb.attributes import (
    EXPIRY,
    NUMBER,
    TEXT,
    Item,
    Layout,
    number,
    text,
    text_of,
)
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core.log.append import Claim

_LAYOUT = Layout(Claim, fingerprint=TEXT, append=TEXT.of("append_id"), page=NUMBER, expires=EXPIRY)


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(f"claim#{feed}"), "name": text(name)}


def encode(feed: str, claim: Claim) -> Item:
    return {**item_key(feed, claim.key), **_LAYOUT.encode(claim)}


def decode(item: Item) -> Claim:
    return _LAYOUT.decode(item, key=text_of(item, "name"))


class DynamoDBClaims(TableStore):
    """Implements `ClaimStore`."""

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
