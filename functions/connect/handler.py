"""A WebSocket opens: the connection is written down, its client says later what it wants."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, sockets
from tidings.aws.clock import now_ms
from tidings.aws.telemetry import edge
from tidings.core.connections import Connection
from tidings.core.errors import Rejected


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    try:
        listener = sockets.listener(event)
    except Rejected as error:
        return sockets.refused(error)
    connection = Connection(sockets.connection_id(event), now_ms(), listener=listener)
    app.connections().open(connection)
    return sockets.OK
