"""Continue the erasures of feeds. The follower `state` and the sweep wake this function.

After a restore, an operator invokes it with `"restored": true` (RUNBOOKS.md).
"""

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
    feeds = wakeups.feeds_to_wake(event)
    run = stage().if_exists(stage().erase_lost if event.get("restored") else stage().erase)
    served = serve(feeds, run, clock=steady_ms, run_ms=limits.ERASE_RUN_MS)
    for feed, error in served.failed.items():
        logger().warning("erasure stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
