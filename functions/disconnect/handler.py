"""A WebSocket has closed: everything about it is forgotten."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, sockets
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    app.connections().remove(sockets.connection_id(event))
    return sockets.OK
