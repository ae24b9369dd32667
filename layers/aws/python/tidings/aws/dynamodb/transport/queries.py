"""Queries that read all there is of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.aws.runtime.aws_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef


def query(
    client: DynamoDBClient, table: str, kind: Item, *, prefix: str | None = None
) -> list[Item]:
    """All items of *kind* whose name begins with *prefix*, in name order, as of now."""
    found: list[Item] = []
    start: Item = {}
    while True:
        answer = _asked(client, table, kind, prefix, **start)
        found += [dict(item) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return found
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def query_few(client: DynamoDBClient, table: str, kind: Item, at_most: int) -> list[Item] | None:
    """All items of *kind*, as of now, by one request; None if there are more than *at_most*."""
    # One more than may be: at the limit itself DynamoDB does not say whether that was all.
    answer = _asked(client, table, kind, Limit=at_most + 1)
    found = [dict(item) for item in answer["Items"]]
    return found if "LastEvaluatedKey" not in answer and len(found) <= at_most else None


def _asked(
    client: DynamoDBClient, table: str, kind: Item, prefix: str | None = None, **more: Any
) -> QueryOutputTypeDef:
    condition, names, values = "#kind = :kind", {"#kind": "kind"}, {":kind": kind}
    if prefix is not None:
        condition += " AND begins_with(#name, :prefix)"
        names["#name"], values[":prefix"] = "name", text(prefix)
    with translated():
        return client.query(
            TableName=table,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ConsistentRead=True,
            **more,
        )
