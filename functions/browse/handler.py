"""What listeners ask over HTTP: resources, who is registered, and the objects of a feed."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.web import changefeeds
from tidings.aws.wiring import adapters, triton
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    try:
        return changefeeds.answer(event, triton.changefeeds(), origins)
    except TidingsError as error:
        return http_events.refused(event, error, origins)
