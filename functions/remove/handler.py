"""Remove the data of deleted feeds. A deletion wakes this function, and so does the sweep."""

from __future__ import annotations

from typing import Any

from tidings.aws.effects import steady_ms
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.core import limits
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> None:
    try:
        stage().remove(steady_ms() + limits.REMOVE_RUN_MS)
    except TidingsError as error:  # the sweep wakes this function again
        logger().warning("removal stopped", reason=str(error))
