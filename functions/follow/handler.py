"""The doorbell: stream records or a direct ring become runs of this function's follower."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, doorbells
from tidings.aws.telemetry import edge, logger
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    failed = []
    for feed, number in doorbells.feeds_rung(event).items():
        try:
            app.follower().run(feed, app.follower_handler(), doorbells.observation(event))
        except TidingsError as error:  # one feed's trouble is not another's
            logger().warning("follower stopped", feed=feed, reason=str(error))
            failed.append(number)
    return doorbells.failures(failed)
