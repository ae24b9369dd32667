"""Handle a WebSocket `$connect`: store the connection. The client subscribes later."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import ws_events
from tidings.aws.runtime import snapshots
from tidings.aws.runtime.clock import now_ms
from tidings.aws.runtime.telemetry import edge
from tidings.aws.stage import stage
from tidings.core.errors import Rejected
from tidings.core.websocket.connections import Connection

snapshots.prepare(lambda: stage().stores.connections)


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    try:
        listener = ws_events.listener(event)
    except Rejected as error:
        return ws_events.refused(error)
    connection = Connection(ws_events.connection_id(event), now_ms(), listener=listener)
    stage().stores.connections.open(connection)
    return ws_events.OK
