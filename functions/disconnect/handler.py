"""Handle a WebSocket's `$disconnect`: remove everything that is stored about the connection."""

from __future__ import annotations

from typing import Any

from tidings.aws import socket_events
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    stage().stores.connections.remove(socket_events.connection_id(event))
    return socket_events.OK
