"""The edge of each function that answers HTTP: events become requests, answers responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.config.settings import sampled_call
from tidings.aws.gateway.http_events import request_from, response_from
from tidings.aws.runtime import snapshots
from tidings.aws.runtime.telemetry import edge
from tidings.aws.wiring import adapters
from tidings.http.answers import respond

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.http.request import Endpoint

    Handler = Callable[[dict[str, Any], object], dict[str, Any]]


def http_edge(endpoint: Callable[[], Endpoint]) -> Handler:
    """The handler of a function; *endpoint* is built when its first request comes."""

    snapshots.prepare(endpoint)

    @edge
    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        settings = adapters.settings()
        request = request_from(event, settings.url_prefix, sampled_call())
        return response_from(respond(endpoint(), request, settings.cors_origins))

    return handle
