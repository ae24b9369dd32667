"""Checkpoints and leases of followers on DynamoDB, in the control table.

The partition key is `follower#<feed>`, and the sort key is the name. `page` is the checkpoint,
`operations` is the number of operations up to the checkpoint, and `note` is the data that the
follower stored with the checkpoint.

`fence` counts the holders of the lease, `beat` the renewals, and `bell` the marks that were left
for the holder. The `owner` of a released lease is empty. `lease_until` is in ms by the clock of the
holder, so it is only a hint. `look` identifies an observer of the lease and its observation: the
fence, the beat and the minute. `erases` is true in the item of `state` if the feed has ever had an
erasure. The sweep reads this item anyway, so a feed without erasures costs no further read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import (
    BINARY,
    FLAG,
    NUMBER,
    TEXT,
    Item,
    Layout,
    number,
    number_of,
    text,
    text_of,
)
from tidings.aws.dynamodb.table import TableStore
from tidings.core import limits
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.leases import Observation

_PREFIX = "follower#"
_LAYOUT = Layout(
    Lease,
    owner=TEXT,
    lease_until=NUMBER.of("expires_ms"),
    fence=NUMBER,
    bell=NUMBER.of("marks"),
    page=NUMBER.of("checkpoint"),
    operations=NUMBER,
    beat=NUMBER,
    note=BINARY,
    erases=FLAG.sparse,
)


def item_kind(feed: str) -> str:
    return f"{_PREFIX}{feed}"


def item_key(feed: str, name: str) -> Item:
    return {"kind": text(item_kind(feed)), "name": text(name)}


def encode(lease: Lease) -> Item:
    return {**item_key(lease.feed, lease.name), **_LAYOUT.encode(lease)}


def decode(item: Item) -> Lease:
    return _LAYOUT.decode(
        item,
        feed=text_of(item, "kind").removeprefix(_PREFIX),
        name=text_of(item, "name"),
        look=text_of(item, "look"),
    )


_FREE = "attribute_not_exists(#owner) OR #owner = :nobody"
_OURS = "#fence = :fence AND #owner = :owner"
_DONE = "#page = :page, #operations = :operations, #note = :note"


class DynamoDBFollowers(TableStore):
    """Implements `FollowerStore` and `Checkpoints`."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        condition = _FREE
        values = {
            ":owner": text(owner),
            ":until": number(now_ms + limits.LEASE_MS),
            ":nobody": text(""),
            ":one": number(1),
        }
        if over is not None:
            unchanged = "#beat = :still" if over.beat else "attribute_not_exists(#beat)"
            condition = f"{_FREE} OR (#fence = :seen AND {unchanged})"
            values[":seen"] = number(over.fence)
            values |= {":still": number(over.beat)} if over.beat else {}
        update = "SET #owner = :owner, #lease_until = :until ADD #fence :one, #beat :one"
        try:
            item = self._table.update(
                item_key(feed, name), update, values, condition, returns="ALL_NEW"
            )
        except ConditionFailed as failed:
            return decode(failed.item)  # the item that we wrote, if the answer was lost
        return decode(item)

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        values = {":one": number(1), ":nobody": text("")}
        if look:
            values[":look"] = text(look)
        update = f"{'SET #look = :look ' if look else ''}ADD #bell :one"
        try:
            before = self._table.update(
                item_key(feed, name), update, values, "#owner > :nobody", returns="ALL_OLD"
            )
        except ConditionFailed:
            return None
        return text_of(before, "look")

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        values = {
            **_ours(lease),
            **_progress(replace(lease, checkpoint=checkpoint)),
            ":until": number(now_ms + limits.LEASE_MS),
            ":one": number(1),
        }
        update = f"SET {_DONE}, #lease_until = :until ADD #beat :one"
        try:
            item = self._table.update(
                item_key(lease.feed, lease.name), update, values, _OURS, returns="ALL_NEW"
            )
        except ConditionFailed:
            raise LeaseLost(feed=lease.feed, follower=lease.name, fence=lease.fence) from None
        return decode(item)

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        condition = _OURS
        values = {**_ours(lease), **_progress(lease), ":free": number(0), ":nobody": text("")}
        if not force:
            condition += " AND (#bell = :bell OR attribute_not_exists(#bell))"
            values[":bell"] = number(lease.marks)
        update = f"SET {_DONE}, #lease_until = :free, #owner = :nobody"
        try:
            self._table.update(item_key(lease.feed, lease.name), update, values, condition)
        except ConditionFailed as failed:
            held = decode(failed.item)
            return (held.fence, held.owner) != (lease.fence, lease.owner)
        return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        kind = {":kind": text(item_kind(feed))}
        answer = self._table.page("#kind = :kind", kind, "#name, #page")
        return {text_of(item, "name"): number_of(item, "page") for item in answer["Items"]}

    def leases(self, feed: str) -> Sequence[Lease]:
        answer = self._table.page("#kind = :kind", {":kind": text(item_kind(feed))})
        return [decode(item) for item in answer["Items"]]


def _progress(lease: Lease) -> Item:
    return {
        ":page": number(lease.checkpoint),
        ":operations": number(lease.operations),
        ":note": {"B": lease.note},
    }


def _ours(lease: Lease) -> Item:
    return {":fence": number(lease.fence), ":owner": text(lease.owner)}
