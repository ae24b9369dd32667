"""Handle a WebSocket `$disconnect`: remove everything stored about the connection."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import ws_events
from tidings.aws.runtime.telemetry import edge
from tidings.aws.stage import stage


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    stage().stores.connections.remove(ws_events.connection_id(event))
    return ws_events.OK
