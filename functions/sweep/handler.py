"""Run the scheduled sweep: wake late followers, trim logs, and remove stale connections."""

from __future__ import annotations

from typing import Any

from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    try:
        stage().sweeper.run()
    finally:
        stage().wake_remover()
