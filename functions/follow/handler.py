"""Run the follower of this function for the feeds named in stream records or in a wake-up."""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    numbers = wakeups.feeds_to_wake(event)
    handler = stage().handler(wakeups.lane(event))
    follower, seen = stage().deployed_follower, wakeups.observation(event)
    served = follower.run_each(numbers, handler, seen, stage().directory.exists)
    for feed, error in served.failed.items():
        logger().warning("follower stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
    return wakeups.failures([numbers[feed] for feed in served.failed])
