"""Continue the erasures of feeds. The follower `state` and the sweep wake this function."""

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
    feeds = stage().settings.feeds & wakeups.feeds_to_wake(event).keys()
    served = serve(feeds, stage().erase, clock=steady_ms, run_ms=limits.ERASE_RUN_MS)
    for feed, error in served.failed.items():
        logger().warning("erasure stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
