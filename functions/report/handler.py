"""`GET /status` and `/health`: how a feed is, and that somebody answers at all."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http
from tidings.aws.telemetry import edge
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.feeds import DEFAULT_FEED
from tidings.core.reporting import OK

HEALTH = "GET /health"


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    if event["routeKey"] == HEALTH:
        return http.told(event, 200, {"status": OK}, origins)
    feed = (event.get("pathParameters") or {}).get("feed", DEFAULT_FEED)
    try:
        return http.told(event, 200, app.reporter().report(feed), origins)
    except Unavailable:
        return http.told(event, 503, app.reporter().unavailable(feed), origins)
    except TidingsError as error:
        return http.refused(event, error, origins)
