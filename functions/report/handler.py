"""`GET /status`: how a feed is; `GET /openapi.json`: what may be asked."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.feeds import DEFAULT_FEED


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    if event["routeKey"] == "GET /openapi.json":
        return _described(event)
    feed = (event.get("pathParameters") or {}).get("feed", DEFAULT_FEED)
    try:
        return http.told(event, 200, app.reporter().report(feed), origins)
    except Unavailable:
        return http.told(event, 503, app.reporter().unavailable(feed), origins)
    except TidingsError as error:
        return http.refused(event, error, origins)


def _described(event: dict[str, Any]) -> dict[str, Any]:
    from tidings.aws.openapi import document  # most processes never need it

    settings = app.settings()
    told = document(settings.feeds, settings.url_prefix)
    return http.told(event, 200, told, settings.cors_origins)
