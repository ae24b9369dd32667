"""
connection: one WebSocket connection.

Key: `connection#<id>`, `-`: each has a partition of its own. It is removed when the connection
ends; should that be missed, it expires `SAFETY_MS` after it was opened. A listener is JSON in
ASCII; there is none for other clients.
"""

from __future__ import annotations

import json

from tidings.aws.dynamodb.items import revocation
from tidings.aws.dynamodb.items.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    Item,
    Layout,
    as_text,
    expiry,
    text,
    text_of,
)
from tidings.aws.dynamodb.items.filter import FILTER
from tidings.core.triton.registration import Kind, Listener
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

SAFETY_MS = 3 * 3600 * 1000  # API Gateway ends every connection after two hours
PREFIX = "connection#"


def _write_listener(listener: Listener) -> str:
    fields = {
        "version": listener.version,
        "feed": listener.feed,
        "instance": listener.instance,
        "service": listener.service,
        "kinds": [[kind.resource, *kind.subs] for kind in listener.kinds],
    }
    return json.dumps(fields, separators=(",", ":"))


def _read_listener(text_: str) -> Listener:
    fields = json.loads(text_)
    kinds = tuple(Kind(resource, tuple(subs)) for resource, *subs in fields.pop("kinds"))
    return Listener(**fields, kinds=kinds)


_LAYOUT = Layout(
    Connection,
    opened=NUMBER.of("opened_ms"),
    session=as_text(lambda state: state.value, State).of("state"),
    feed=TEXT.sparse,
    progress=TEXT.sparse,
    runner=TEXT.sparse,
    encoding=TEXT.sparse,
    filter=FILTER,
    listener=as_text(_write_listener, _read_listener).sparse,
    since=NUMBER,
    runner_until=NUMBER.of("runner_expires_ms"),
    version=NUMBER,
    lane=NUMBER.sparse,
    traced=FLAG.sparse,
)


def key(connection_id: str) -> Item:
    return {"kind": text(f"{PREFIX}{connection_id}"), "name": text("-")}


def encode(connection: Connection) -> Item:
    return {
        **key(connection.id),
        **_LAYOUT.encode(connection),
        **revocation.encode(connection.admission),
        **expiry(connection.opened_ms + SAFETY_MS),
    }


def decode(item: Item) -> Connection:
    id_ = text_of(item, "kind").removeprefix(PREFIX)
    return _LAYOUT.decode(item, id=id_, admission=revocation.decode(item))
