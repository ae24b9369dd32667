"""Queries that read all there is of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .items.attributes import Item, text
from .weather import translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def query(
    client: DynamoDBClient, table: str, kind: Item, *, prefix: str | None = None
) -> list[Item]:
    """All items of *kind* whose name begins with *prefix*, in name order, as of now."""
    condition, names, values = "#kind = :kind", {"#kind": "kind"}, {":kind": kind}
    if prefix is not None:
        condition += " AND begins_with(#name, :prefix)"
        names["#name"], values[":prefix"] = "name", text(prefix)
    found: list[Item] = []
    start: Item = {}
    while True:
        with translated():
            answer = client.query(
                TableName=table,
                KeyConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                **start,
            )
        found += [dict(item) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return found
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def query_few(client: DynamoDBClient, table: str, kind: Item, at_most: int) -> list[Item] | None:
    """All items of *kind*, as of now, by one request; None if there are more than *at_most*."""
    with translated():
        answer = client.query(
            TableName=table,
            KeyConditionExpression="#kind = :kind",
            ExpressionAttributeNames={"#kind": "kind"},
            ExpressionAttributeValues={":kind": kind},
            ConsistentRead=True,
            Limit=at_most + 1,  # at the limit itself DynamoDB does not say whether that was all
        )
    found = [dict(item) for item in answer["Items"]]
    return found if "LastEvaluatedKey" not in answer and len(found) <= at_most else None
