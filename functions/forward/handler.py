"""A bell of the outbox, or the schedule: what waits in it is appended to its feed."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, doorbells, listeners_app
from tidings.aws.telemetry import edge, logger
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    feeds = app.settings().feeds
    rung = doorbells.feeds_rung(event) if "Records" in event else dict.fromkeys(feeds, "")
    failed = []
    for feed, number in rung.items():
        if feed not in feeds:
            continue  # a letter that was put aside, or whose feed is nobody's
        try:
            listeners_app.forwarder().run(feed)
        except TidingsError as error:  # one feed's trouble is not another's
            logger().warning("letters wait", feed=feed, reason=str(error))
            failed.append(number)
    return doorbells.failures(failed)
