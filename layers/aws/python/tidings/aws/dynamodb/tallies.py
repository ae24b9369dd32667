"""What `/status` counts, on DynamoDB, in the control table and away from the feed's counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import counter
from tidings.aws.dynamodb.items.attributes import Item, expiry, number, text
from tidings.aws.runtime.aws_errors import translated
from tidings.core.counters import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBCounters:
    """
    Implements `Counters`. *client* is made when something is counted: most processes never do.

    It should send once, because a repeated ADD may count twice. A flood of refused requests
    throttles its own partition, not the one that numbers pages.
    """

    def __init__(self, client: Callable[[], DynamoDBClient], table: str) -> None:
        self._client, self._table = client, table

    def refuse(self, feed: str) -> None:
        self._add(counter.key(feed, counter.REFUSED), {"refused": 1})

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        self._add(counter.key(feed, counter.SERVED), {"connections": connections, "sent": sent})

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        if not clients:
            with translated():
                self._client().delete_item(TableName=self._table, Key=counter.presence(feed, place))
            return
        with translated():
            self._client().update_item(
                TableName=self._table,
                Key=counter.presence(feed, place),
                UpdateExpression="SET #clients = :clients, #until = :until, #expires = :expires",
                ExpressionAttributeNames={
                    "#clients": "clients",
                    "#until": "until",
                    "#expires": "expires",
                },
                ExpressionAttributeValues={
                    ":clients": number(clients),
                    ":until": number(until_ms),
                    ":expires": expiry(until_ms)["expires"],
                },
            )

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        found: list[Item] = []
        start: Item = {}
        while True:
            with translated():
                answer = self._client().query(
                    TableName=self._table,
                    KeyConditionExpression="#kind = :kind",
                    ExpressionAttributeNames={"#kind": "kind"},
                    ExpressionAttributeValues={":kind": text(counter.kind(feed))},
                    ConsistentRead=True,
                    **start,
                )
            found += [dict(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return counter.decode(found, now_ms=now_ms)
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _add(self, key: Item, counts: dict[str, int]) -> None:
        with translated():
            self._client().update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression="ADD " + ", ".join(f"#{name} :{name}" for name in counts),
                ExpressionAttributeNames={f"#{name}": name for name in counts},
                ExpressionAttributeValues={
                    f":{name}": number(count) for name, count in counts.items()
                },
            )
