"""Run the relay of a chained feed: read its upstream until the run ends, then wake the next run."""

from __future__ import annotations

from typing import Any

from tidings.aws import wakeups
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge, logger
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> None:
    for feed in wakeups.feeds_to_wake(event):
        try:
            stage().relayer(feed).run(feed)
        except TidingsError as error:  # the relay records it, and the sweep wakes it again
            logger().warning("relay stopped", feed=feed, reason=str(error))
