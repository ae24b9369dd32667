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
            if stage().directory.exists(feed):
                stage().relayer(feed).run(feed)
        except TidingsError as error:  # the relay stores the error, and the sweep wakes the relay
            logger().warning("relay stopped", feed=feed, reason=str(error))
