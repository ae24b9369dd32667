"""`GET /status`: how a feed is."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http
from tidings.aws.telemetry import edge
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.feeds import DEFAULT_FEED


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    feed = (event.get("pathParameters") or {}).get("feed", DEFAULT_FEED)
    try:
        return http.told(event, 200, app.reporter().report(feed), origins)
    except Unavailable:
        return http.told(event, 503, app.reporter().unavailable(feed), origins)
    except TidingsError as error:
        return http.refused(event, error, origins)
