"""Writes that count only where nobody else has been meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import number
from tidings.aws.runtime.aws_errors import ConditionFailed, translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.aws.dynamodb.items.attributes import Item


def put_over(
    client: DynamoDBClient, table: str, item: Item, version: int, *, may_be_new: bool
) -> bool:
    """
    Put *item* over that of *version*; False where another one stands there.

    *may_be_new*: also where there is none.
    """
    unwritten = "attribute_not_exists(#version) OR " if may_be_new else ""
    try:
        with translated():
            client.put_item(
                TableName=table,
                Item=item,
                ConditionExpression=f"{unwritten}#version = :version",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues={":version": number(version)},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
    except ConditionFailed as failed:
        return failed.retried and failed.item == item  # the answer to ours was lost
    return True


def raise_page(client: DynamoDBClient, table: str, key: Item, page: int) -> None:
    """Let the item of *key* name *page*, unless it names a later one already."""
    try:
        with translated():
            client.update_item(
                TableName=table,
                Key=key,
                UpdateExpression="SET #page = :page",
                ConditionExpression="attribute_not_exists(#page) OR #page < :page",
                ExpressionAttributeNames={"#page": "page"},
                ExpressionAttributeValues={":page": number(page)},
            )
    except ConditionFailed:
        return
