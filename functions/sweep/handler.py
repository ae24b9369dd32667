"""Run the scheduled sweep: wake late followers, trim logs, and remove stale connections."""

from __future__ import annotations

import contextlib
from typing import Any

from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    with contextlib.ExitStack() as steps:  # all of them, also after an error of one
        steps.callback(stage().wake_remover)
        steps.callback(stage().sweeper.run)
        stage().mark_outboxes()
