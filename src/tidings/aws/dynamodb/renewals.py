"""
The expiry of pages of the log, and the progress of their renewal, on DynamoDB.

Key: `renewal#<feed>`, `-`. `page` is the last page checked, 0 after the end of a round; `began` is
in ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import NUMBER, Item, Layout, expiry_ms, number, seconds, text
from tidings.aws.dynamodb.log import page_key
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core import limits
from tidings.core.log.renewal import Round

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


_ROUND = Layout(Round, page=NUMBER, began=NUMBER.of("began_ms"))


def item_key(feed: str) -> Item:
    return {"kind": text(f"renewal#{feed}"), "name": text("-")}


class DynamoDBRenewals:
    """Implements `RenewStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = Table(client, log_table), Table(client, control_table)

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """
        Read with eventual consistency, at half the price: a page written recently expires late
        anyway.
        """
        if after >= last:
            return []
        answer = self._log.page(
            "#feed = :feed AND #page BETWEEN :first AND :last",
            {":feed": text(feed), ":first": number(after + 1), ":last": number(last)},
            "#page, #expires",
            consistent=False,
            Limit=limits.READ_ITEMS_MAX,
        )
        return [(int(item["page"]["N"]), expiry_ms(item)) for item in answer["Items"]]

    def renew(self, feed: str, page_: int, expires_ms: int) -> None:
        try:
            self._log.update(
                page_key(feed, page_),
                "SET #expires = :expires",
                {":expires": number(seconds(expires_ms))},
                "#expires < :expires",  # false if the page is missing
            )
        except ConditionFailed:
            return

    def round(self, feed: str) -> Round:
        return _ROUND.decode(self._control.get(item_key(feed)) or {})

    def keep(self, feed: str, round_: Round) -> None:
        values = {f":{name}": value for name, value in _ROUND.encode(round_).items()}
        self._control.update(item_key(feed), "SET #page = :page, #began = :began", values)
