"""The doorbell of a chained feed: read its upstream until the run ends, then ring for the next."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import stream_triggers
from tidings.aws.runtime.telemetry import edge, logger
from tidings.aws.wiring import replication
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> None:
    for feed in stream_triggers.feeds_to_wake(event):
        try:
            replication.relayer(feed).run(feed)
        except TidingsError as error:  # it is told in the relay, and the sweep rings again
            logger().warning("relay stopped", feed=feed, reason=str(error))
