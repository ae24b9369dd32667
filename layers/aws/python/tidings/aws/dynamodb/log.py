"""The log on DynamoDB: pages in a table of their own, head and floor in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import floor, head, page
from tidings.aws.dynamodb.items.attributes import Item, number, text, text_of
from tidings.aws.dynamodb.transport.conditional_writes import raise_page
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core import limits
from tidings.core.counters import Taken
from tidings.core.model.pages import Page, Pages

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# What readers ask for: each attribute costs every reader of every page.
_NAMES = {"#feed": "feed", "#page": "page", "#body": "body", "#at": "at", "#slots": "slots"}
_READ = "#page, #body, #at, #slots"


class DynamoDBLog:
    """Implements `LogStore`, `Intake` and `TrimStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._client, self._log, self._control = client, log_table, control_table

    def take(self, feed: str, operations: int = 0) -> int:
        """Should botocore send it twice, a number is lost and becomes a hole: no harm."""
        with translated():
            answer = self._client.update_item(
                TableName=self._control,
                Key=head.key(feed),
                UpdateExpression="ADD #page :one, #operations :operations",
                ExpressionAttributeNames={"#page": "page", "#operations": "operations"},
                ExpressionAttributeValues={
                    ":one": number(1),
                    ":operations": number(operations),
                },
                ReturnValues="UPDATED_NEW",
            )
        return head.decode(answer["Attributes"])

    def put(self, feed: str, page_: Page) -> str:
        try:
            with translated():
                self._client.put_item(
                    TableName=self._log,
                    Item=page.encode(feed, page_),
                    ConditionExpression="attribute_not_exists(#page)",
                    ExpressionAttributeNames={"#page": "page"},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return text_of(failed.item, "append")
        return page_.append_id

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        with translated():
            answer = self._client.query(
                TableName=self._log,
                KeyConditionExpression="#feed = :feed AND #page > :after",
                ProjectionExpression=_READ,
                ExpressionAttributeNames=_NAMES,
                ExpressionAttributeValues={":feed": text(feed), ":after": number(after)},
                ConsistentRead=not eventual,
                Limit=limit or limits.READ_ITEMS_MAX,
            )
        more = "LastEvaluatedKey" in answer
        return Pages((page.decode(item) for item in answer["Items"]), more=more)

    def head(self, feed: str) -> int:
        return head.decode(self._control_item(head.key(feed)))

    def taken(self, feed: str) -> Taken:
        return head.taken(self._control_item(head.key(feed)))

    def floor(self, feed: str) -> int:
        return floor.decode(self._control_item(floor.key(feed)))

    def raise_floor(self, feed: str, page_: int) -> None:
        raise_page(self._client, self._control, floor.key(feed), page_)

    def _control_item(self, key: Item) -> Item:
        with translated():
            answer = self._client.get_item(TableName=self._control, Key=key, ConsistentRead=True)
        return dict(answer.get("Item", {}))
