"""Handle a WebSocket's `$connect`: store the connection. The client subscribes later."""

from __future__ import annotations

from typing import Any

from tidings.aws import socket_events
from tidings.aws.effects import now_ms
from tidings.aws.stage import prepare_snapshot, stage
from tidings.aws.telemetry import edge
from tidings.core.errors import Rejected
from tidings.core.websocket.connections import Connection

prepare_snapshot(lambda: stage().stores.connections)


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    try:
        listener = socket_events.listener(event)
    except Rejected as error:
        return socket_events.refuse(error)
    connection = Connection(socket_events.connection_id(event), now_ms(), listener=listener)
    stage().stores.connections.open(connection)
    return socket_events.OK
