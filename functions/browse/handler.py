"""What listeners ask over HTTP: resources, who is registered, and the objects of a feed."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, changefeeds_http, http, listeners_app
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        return changefeeds_http.answer(event, listeners_app.changefeeds(), origins)
    except TidingsError as error:
        return http.refused(event, error, origins)
