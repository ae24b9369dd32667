"""When pages of the log expire, and how far their renewal is, on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import page, renewal
from tidings.aws.dynamodb.items.attributes import expiry_ms, number, seconds, text
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core import limits

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.log.renewal import Round


class DynamoDBRenewals:
    """Implements `RenewStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._client, self._log, self._control = client, log_table, control_table

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """Eventually consistent: half the price, and what was written a moment ago lives long."""
        if after >= last:
            return []
        with translated():
            answer = self._client.query(
                TableName=self._log,
                KeyConditionExpression="#feed = :feed AND #page BETWEEN :first AND :last",
                ProjectionExpression="#page, #expires",
                ExpressionAttributeNames={"#feed": "feed", "#page": "page", "#expires": "expires"},
                ExpressionAttributeValues={
                    ":feed": text(feed),
                    ":first": number(after + 1),
                    ":last": number(last),
                },
                Limit=limits.READ_ITEMS_MAX,
            )
        return [(int(item["page"]["N"]), expiry_ms(item)) for item in answer["Items"]]

    def renew(self, feed: str, page_: int, expires_ms: int) -> None:
        try:
            with translated():
                self._client.update_item(
                    TableName=self._log,
                    Key=page.key(feed, page_),
                    UpdateExpression="SET #expires = :expires",
                    ConditionExpression="#expires < :expires",  # false where there is no page
                    ExpressionAttributeNames={"#expires": "expires"},
                    ExpressionAttributeValues={":expires": number(seconds(expires_ms))},
                )
        except ConditionFailed:
            return

    def round(self, feed: str) -> Round:
        with translated():
            answer = self._client.get_item(
                TableName=self._control, Key=renewal.key(feed), ConsistentRead=True
            )
        return renewal.decode(answer.get("Item", {}))

    def keep(self, feed: str, round_: Round) -> None:
        values = renewal.encode(round_)
        with translated():
            self._client.update_item(
                TableName=self._control,
                Key=renewal.key(feed),
                UpdateExpression="SET #page = :page, #began = :began",
                ExpressionAttributeNames={f"#{name}": name for name in values},
                ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
            )
