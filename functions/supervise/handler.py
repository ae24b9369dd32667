"""Chained feeds as their operators see them: `/relays`, and `/relay` of a feed."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http, relay_app
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        status, body = relay_app.desk().answer(event)
    except TidingsError as error:
        return http.refused(event, error, origins)
    return http.told(event, status, body, origins)
