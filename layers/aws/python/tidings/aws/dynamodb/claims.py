"""What became of requests with an Idempotency-Key, on DynamoDB in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import claim as claims
from tidings.aws.dynamodb.items.attributes import Item, number, text
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core.log.idempotency import Claim

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBClaims:
    """Implements `ClaimStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        item = self._table.get(claims.key(feed, key))
        claim = claims.decode(item) if item else None
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
            self._table.put(claims.encode(feed, claim), condition, values)
        except ConditionFailed as failed:
            return claims.decode(failed.item)
        return claim
