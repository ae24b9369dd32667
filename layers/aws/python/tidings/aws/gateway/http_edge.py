"""The edge of each function that answers HTTP, which refuses what a foreign page would change."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from tidings.aws.gateway.http_events import refused
from tidings.aws.runtime.telemetry import edge
from tidings.aws.wiring import adapters
from tidings.core.auth.origins import READING, check_change
from tidings.core.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[dict[str, Any], object], dict[str, Any]]


def http_edge(handler: Handler) -> Handler:
    """As `edge`; a page of another origin changes nothing, unless a setting names the origin."""

    @edge
    @wraps(handler)
    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        if event["requestContext"]["http"]["method"] not in READING:
            origins = adapters.settings().cors_origins
            try:
                headers = event.get("headers") or {}
                check_change(headers, origins, has_body=bool(event.get("body")))
            except Rejected as error:
                return refused(event, error, origins)
        return handler(event, context)

    return handle
