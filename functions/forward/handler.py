"""A bell of the outbox, or the schedule: what waits in it is appended to its feed."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, doorbells, listeners_app
from tidings.aws.clock import now_ms
from tidings.aws.telemetry import edge, logger
from tidings.core import limits
from tidings.core.invocation import in_turn, serve


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    feeds = app.settings().feeds
    rung = doorbells.feeds_rung(event) if "Records" in event else dict.fromkeys(feeds, "")
    ours = feeds & rung.keys()  # others are letters put aside, or of a feed that is nobody's
    turns = in_turn(ours, now_ms() // limits.SWEEP_EVERY_MS)
    run = listeners_app.forwarder().run
    served = serve(turns, run, clock=now_ms, run_ms=limits.FORWARD_RUN_MS)
    for feed, error in served.failed.items():
        logger().warning("letters wait", feed=feed, reason=str(error))
    served.raise_mistakes()
    return doorbells.failures([rung[feed] for feed in served.again])
