"""
connection: one WebSocket connection.

Key: `connection#<id>`, `-`: each has a partition of its own. It is removed when the connection
ends; should that be missed, it expires `SAFETY_MS` after it was opened.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items import filter, listener, revocation
from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    number,
    number_of,
    text,
    text_of,
    without_empty,
)
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

SAFETY_MS = 3 * 3600 * 1000  # API Gateway ends every connection after two hours
PREFIX = "connection#"


def key(connection_id: str) -> Item:
    return {"kind": text(f"{PREFIX}{connection_id}"), "name": text("-")}


def encode(connection: Connection) -> Item:
    return {
        **key(connection.id),
        "opened": number(connection.opened_ms),
        "session": text(connection.state.value),
        **without_empty(
            {
                "feed": connection.feed,
                "progress": connection.progress,
                "runner": connection.runner,
            }
        ),
        **filter.encode(connection.filter),
        **listener.encode(connection.listener),
        **revocation.encode(connection.admission),
        "since": number(connection.since),
        "runner_until": number(connection.runner_expires_ms),
        "version": number(connection.version),
        **expiry(connection.opened_ms + SAFETY_MS),
    }


def decode(item: Item) -> Connection:
    return Connection(
        id=text_of(item, "kind").removeprefix(PREFIX),
        opened_ms=number_of(item, "opened"),
        state=State(text_of(item, "session")),
        feed=text_of(item, "feed"),
        filter=filter.decode(item),
        progress=text_of(item, "progress"),
        since=number_of(item, "since"),
        runner=text_of(item, "runner"),
        runner_expires_ms=number_of(item, "runner_until"),
        listener=listener.decode(item),
        admission=revocation.decode(item),
        version=number_of(item, "version"),
    )
