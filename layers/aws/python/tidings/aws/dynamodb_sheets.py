"""What operators have written down, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.sheets import Sheet

from .items import sheet as sheets
from .items.attributes import number
from .weather import ConditionFailed, translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBSheets:
    """Implements `Sheets`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def sheet(self, feed: str, name: str) -> Sheet:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=sheets.key(feed, name), ConsistentRead=True
            )
        return sheets.decode(answer.get("Item", {}))

    def write(self, feed: str, name: str, sheet: Sheet) -> bool:
        item = sheets.encode(feed, name, Sheet(sheet.text, sheet.version + 1))
        unwritten = "attribute_not_exists(#version) OR " if sheet.version == 0 else ""
        try:
            with translated():
                self._client.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression=f"{unwritten}#version = :version",
                    ExpressionAttributeNames={"#version": "version"},
                    ExpressionAttributeValues={":version": number(sheet.version)},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as failed:
            return failed.retried and failed.item == item  # the answer to ours was lost
        return True
