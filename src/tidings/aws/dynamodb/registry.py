"""Registrations of listeners on DynamoDB, in the connections table.

The partition key is `registered#<feed>`. The sort key is the instance, a NUL and the resource.
Instance and resource contain no NUL. The item is removed with the connection. If that fails, the
item expires `SAFETY_MS` after it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import (
    Item,
    expiry,
    text,
    text_of,
    texts,
    texts_of,
    without_empty,
)
from tidings.aws.dynamodb.table import TableStore
from tidings.aws.effects import now_ms
from tidings.core.triton.registration import Kind, Listener, Registered

if TYPE_CHECKING:
    from collections.abc import Sequence

SAFETY_MS = 3 * 3600 * 1000  # longer than a connection, which API Gateway ends after two hours


def registered_kind(feed: str) -> str:
    return f"registered#{feed}"


def registered_key(feed: str, instance: str, resource: str) -> Item:
    return {"kind": text(registered_kind(feed)), "name": text(f"{instance}\0{resource}")}


def encode_registration(
    feed: str, connection_id: str, listener: Listener, wanted: Kind, *, expires_ms: int
) -> Item:
    return {
        **registered_key(feed, listener.instance, wanted.resource),
        "connection": text(connection_id),
        **without_empty({"service": listener.service}),
        "subs": texts(wanted.subs),
        **expiry(expires_ms),
    }


def decode_registration(item: Item) -> Registered:
    instance, _, resource = text_of(item, "name").partition("\0")
    return Registered(
        connection_id=text_of(item, "connection"),
        instance=instance,
        service=text_of(item, "service"),
        kind=Kind(resource, texts_of(item, "subs") or ()),
    )


class DynamoDBRegistry(TableStore):
    """Implements `Registry`."""

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        expires_ms = now_ms() + SAFETY_MS
        replaced = set()
        for kind in listener.kinds:
            item = encode_registration(feed, connection_id, listener, kind, expires_ms=expires_ms)
            replaced.add(text_of(self._table.put(item, returns="ALL_OLD"), "connection"))
        return sorted(replaced - {"", connection_id})

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        for kind in listener.kinds:
            self._take_out(feed, connection_id, listener.instance, kind.resource)

    def _take_out(self, feed: str, connection_id: str, instance: str, resource: str) -> None:
        try:
            key = registered_key(feed, instance, resource)
            ours = {":connection": text(connection_id)}
            self._table.delete(key, "#connection = :connection", ours)
        except ConditionFailed:
            return  # the registration now belongs to another connection, or is gone

    def registered(self, feed: str) -> Sequence[Registered]:
        return [decode_registration(item) for item in self._table.of_kind(registered_kind(feed))]
