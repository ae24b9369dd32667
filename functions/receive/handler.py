"""A WebSocket client says something: subscribe, resume, unsubscribe or ping."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, sockets
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    app.receiver().receive(sockets.connection_id(event), sockets.text(event))
    return sockets.OK
