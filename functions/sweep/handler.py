"""Run the scheduled sweep: late followers, retention, and connections that were not cleaned up."""

from __future__ import annotations

from typing import Any

from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    stage().sweeper.run(stage().settings.feeds)
