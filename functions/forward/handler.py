"""Append the pending messages of the outbox to their feeds.

The stream of the outbox's table wakes this function, and so does the sweep.
"""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.effects import now_ms, steady_ms
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.followers.invocation import in_turn, serve


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    numbers = wakeups.feeds_to_wake(event)
    try:
        numbers = stage().by_key(numbers)
    except Unavailable as unavailable:
        logger().warning("outbox messages wait", reason=str(unavailable))
        return wakeups.failures([*numbers.values()])
    turns = in_turn(numbers, now_ms() // limits.SWEEP_EVERY_MS)
    run = stage().forwarder.run
    served = serve(turns, run, clock=steady_ms, run_ms=limits.FORWARD_RUN_MS)
    for feed, error in served.failed.items():
        logger().warning("outbox messages wait", feed=feed, reason=str(error))
    served.raise_mistakes()
    return wakeups.failures([numbers[feed] for feed in served.again])
