"""POST of items: what a publisher says has changed becomes one page of the log."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http, listeners_app
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        ids = listeners_app.publisher().accept(http.routed_request(event))
    except TidingsError as error:
        return http.refused(event, error, origins)
    return http.accepted(event, ids, origins)
