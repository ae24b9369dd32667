"""Handle a WebSocket client's message: subscribe, resume, unsubscribe or ping."""

from __future__ import annotations

from typing import Any

from tidings.aws import socket_events
from tidings.aws.request_log import write
from tidings.aws.stage import prepare_snapshot, stage
from tidings.aws.telemetry import edge, request_id
from tidings.core.auth.keys import find_id

prepare_snapshot(lambda: stage().receiver)


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    connection, text = socket_events.connection_id(event), socket_events.text(event)
    if key := find_id(text):
        peer, proxies = socket_events.peer(event), stage().settings.address_proxies
        write("key", request_id(context), proxies, peer, key=key, connection=connection)
    stage().receiver.receive(connection, text)
    return socket_events.OK
