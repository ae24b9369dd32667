"""What `/status` counts, on DynamoDB, in the control table and away from the feed's counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import counter
from tidings.aws.dynamodb.items.attributes import Item, expiry, number
from tidings.aws.dynamodb.transport.table import Table
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
        self._client, self._name = client, table

    @property
    def _table(self) -> Table:
        return Table(self._client(), self._name)

    def refuse(self, feed: str) -> None:
        self._add(counter.key(feed, counter.REFUSED), {"refused": 1})

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        self._add(counter.key(feed, counter.SERVED), {"connections": connections, "sent": sent})

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        key = counter.presence(feed, place)
        if not clients:
            self._table.delete(key)
            return
        values = {
            ":clients": number(clients),
            ":until": number(until_ms),
            ":expires": expiry(until_ms)["expires"],
        }
        update = "SET #clients = :clients, #until = :until, #expires = :expires"
        self._table.update(key, update, values)

    def totals(self, feed: str, *, now_ms: int) -> Totals:
        return counter.decode(self._table.of_kind(counter.kind(feed)), now_ms=now_ms)

    def _add(self, key: Item, counts: dict[str, int]) -> None:
        values = {f":{name}": number(count) for name, count in counts.items()}
        self._table.update(key, "ADD " + ", ".join(f"#{name} :{name}" for name in counts), values)
