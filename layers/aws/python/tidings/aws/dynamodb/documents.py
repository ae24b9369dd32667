"""What operators have written down, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import document as sheets
from tidings.aws.dynamodb.transport.conditional_writes import put_over
from tidings.aws.runtime.aws_errors import translated
from tidings.core.changeagent.documents import Sheet

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
        new = sheet.version == 0
        return put_over(self._client, self._table, item, sheet.version, may_be_new=new)
