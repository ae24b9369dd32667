"""Handle a WebSocket client's message: subscribe, resume, unsubscribe or ping."""

from __future__ import annotations

from typing import Any

from tidings.aws import socket_events
from tidings.aws.stage import prepare_snapshot, stage
from tidings.aws.telemetry import edge

prepare_snapshot(lambda: stage().receiver)


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    stage().receiver.receive(socket_events.connection_id(event), socket_events.text(event))
    return socket_events.OK
