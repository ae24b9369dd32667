"""The counters that `/status` reports, on DynamoDB, in the control table.

The partition key is `tally#<feed>`, and the sort key is a name. The items `refused` and `served`
are kept forever. An item `at#<place>` has the number of clients at a place, which is a process or
the WebSockets that the sweep counts. The number is valid until `until` in ms. The item is deleted
when no client is connected; if the deletion fails, the item expires. The counters are not in the
item of the feed's head, so that they have a partition of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, expiry, number, number_of, text, text_of
from tidings.aws.dynamodb.table import Table
from tidings.core.counters import Totals, is_present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mypy_boto3_dynamodb import DynamoDBClient


REFUSED, SERVED = "refused", "served"
_AT = "at#"


def item_kind(feed: str) -> str:
    return f"tally#{feed}"


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(item_kind(feed)), "name": text(name)}


def presence(feed: str, reporter: str) -> Item:
    """Return the key of the item with the number of clients at *reporter*."""
    return item_key(feed, _AT + reporter)


def decode(items: Iterable[Item], *, now_ms: int) -> Totals:
    """Return the totals of *items*, which are all items of a feed in any order."""
    counts, clients = {REFUSED: 0, "connections": 0, "sent": 0}, 0
    for item in items:
        if not text_of(item, "name").startswith(_AT):
            counts = {name: counts[name] + number_of(item, name) for name in counts}
        elif is_present(number_of(item, "until"), now_ms):
            clients += number_of(item, "clients")
    return Totals(**counts, clients=clients)


class DynamoDBCounters:
    """Implements `Counters`.

    *client* is not called before the first request, because most processes count nothing. The
    client should not retry, because a repeated ADD may count twice. The counters have a
    partition of their own, so that a flood of refused requests does not throttle the numbering of
    pages.
    """

    def __init__(self, client: Callable[[], DynamoDBClient], table: str) -> None:
        self._client, self._name = client, table

    @property
    def _table(self) -> Table:
        return Table(self._client(), self._name)

    def refuse(self, feed: str) -> None:
        self._add(item_key(feed, REFUSED), {"refused": 1})

    def serve(self, feed: str, *, connections: int, sent: int) -> None:
        self._add(item_key(feed, SERVED), {"connections": connections, "sent": sent})

    def attend(self, feed: str, reporter: str, clients: int, *, until_ms: int) -> None:
        key = presence(feed, reporter)
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
        return decode(self._table.of_kind(item_kind(feed)), now_ms=now_ms)

    def _add(self, key: Item, counts: dict[str, int]) -> None:
        values = {f":{name}": number(count) for name, count in counts.items()}
        self._table.update(key, "ADD " + ", ".join(f"#{name} :{name}" for name in counts), values)
