"""Run this function's follower for stream records or a direct wake-up."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import stream_triggers
from tidings.aws.runtime.telemetry import edge, logger
from tidings.aws.stage import stage


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    numbers = stream_triggers.feeds_to_wake(event)
    handler = stage().handler(stream_triggers.lane(event))
    served = stage().deployed_follower.run_each(
        numbers, handler, stream_triggers.observation(event)
    )
    for feed, error in served.failed.items():
        logger().warning("follower stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
    return stream_triggers.failures([numbers[feed] for feed in served.failed])
