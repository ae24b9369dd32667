"""What became of requests with an Idempotency-Key, on DynamoDB in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import claim as claims
from tidings.aws.dynamodb.items.attributes import Item, number, text
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core.log.idempotency import Claim

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBClaims:
    """Implements `ClaimStore`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=claims.key(feed, key), ConsistentRead=True
            )
        if "Item" not in answer:
            return None
        found = claims.decode(answer["Item"])
        return found if found.expires_ms > now_ms else None

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        return self._put(
            feed,
            claim,
            condition="attribute_not_exists(#expires) OR #expires <= :now",
            names={"#expires": "expires"},
            values={":now": number(now_ms // 1000)},
        )

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        return self._put(
            feed,
            replace(claim, page=page),
            condition="attribute_not_exists(#append) OR (#append = :append AND #page = :page)",
            names={"#append": "append", "#page": "page"},
            values={":append": text(claim.append_id), ":page": number(claim.page)},
        )

    def _put(
        self, feed: str, claim: Claim, *, condition: str, names: dict[str, str], values: Item
    ) -> Claim:
        try:
            with translated():
                self._client.put_item(
                    TableName=self._table,
                    Item=claims.encode(feed, claim),
                    ConditionExpression=condition,
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=values,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return claims.decode(failed.item)
        return claim
