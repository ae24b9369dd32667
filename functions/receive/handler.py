"""Handle a WebSocket client's message: subscribe, resume, unsubscribe or ping."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import ws_events
from tidings.aws.runtime import snapshots
from tidings.aws.runtime.telemetry import edge
from tidings.aws.stage import stage

snapshots.prepare(lambda: stage().receiver)


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    stage().receiver.receive(ws_events.connection_id(event), ws_events.text(event))
    return ws_events.OK
