"""The catch-up of one connection, woken by `{"replay": connection id}`."""

from __future__ import annotations

from typing import Any

from tidings.aws import app
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    app.replayer().run(event["replay"])
