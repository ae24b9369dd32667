"""`GET /status`: how a feed is; `GET /openapi.json`: what may be asked."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import adapters, core
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.model.feeds import DEFAULT_FEED


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    if event["routeKey"] == "GET /openapi.json":
        return _described(event)
    feed = (event.get("pathParameters") or {}).get("feed", DEFAULT_FEED)
    try:
        return http_events.told(event, 200, core.reporter().report(feed), origins)
    except Unavailable:
        return http_events.told(event, 503, core.reporter().unavailable(feed), origins)
    except TidingsError as error:
        return http_events.refused(event, error, origins)


def _described(event: dict[str, Any]) -> dict[str, Any]:
    from tidings.aws.web.openapi import document  # most processes never need it

    settings = adapters.settings()
    told = document(settings.feeds, settings.url_prefix)
    return http_events.told(event, 200, told, settings.cors_origins)
