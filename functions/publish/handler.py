"""POST of items: what a publisher says has changed becomes one page of the log."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import adapters, triton
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    try:
        ids = triton.publisher().accept(http_events.routed_request(event))
    except TidingsError as error:
        return http_events.refused(event, error, origins)
    return http_events.accepted(event, ids, origins)
