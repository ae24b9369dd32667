"""Summarize the tags of new pages in the tag index. The sweep wakes this function."""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.effects import steady_ms
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.core import limits
from tidings.core.followers.invocation import serve


@edge
def handle(event: dict[str, Any], context: object) -> None:
    run = stage().if_exists(stage().indexer.run)
    served = serve(wakeups.feeds_to_wake(event), run, clock=steady_ms, run_ms=limits.INDEX_RUN_MS)
    for feed, error in served.failed.items():
        logger().warning("tag index stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
