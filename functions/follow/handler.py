"""The doorbell: stream records or a direct ring become runs of this function's follower."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, doorbells
from tidings.aws.telemetry import edge, logger


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    rung = doorbells.feeds_rung(event)
    served = app.follower().run_each(rung, app.follower_handler(), doorbells.observation(event))
    for feed, error in served.failed.items():
        logger().warning("follower stopped", feed=feed, reason=str(error))
    served.raise_mistakes()
    return doorbells.failures([rung[feed] for feed in served.failed])
