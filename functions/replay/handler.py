"""Run the catch-up of one connection. The event is `{"replay": connection id}`."""

from __future__ import annotations

from typing import Any

from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    stage().replayer.run(event["replay"])
