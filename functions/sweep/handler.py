"""The schedule's safety net: late followers, retention, connections left half way."""

from __future__ import annotations

from typing import Any

from tidings.aws.runtime.telemetry import edge
from tidings.aws.stage import stage


@edge
def handle(event: dict[str, Any], context: object) -> None:
    stage().sweeper.run(stage().settings.feeds)
