"""Chained feeds as their operators see them: `/relays`, and `/relay` of a feed."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import adapters, replication
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    try:
        status, body = replication.router().answer(event)
    except TidingsError as error:
        return http_events.refused(event, error, origins)
    return http_events.told(event, status, body, origins)
