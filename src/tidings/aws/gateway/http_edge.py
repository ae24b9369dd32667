"""The handlers of functions that answer HTTP: convert events to requests, answers to responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.config.settings import sampled_call
from tidings.aws.gateway.http_events import request_from, response_from
from tidings.aws.runtime import snapshots
from tidings.aws.runtime.telemetry import edge
from tidings.aws.stage import stage
from tidings.http.answers import respond

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[dict[str, Any], object], dict[str, Any]]


def http_edge(function: str) -> Handler:
    """
    Return the handler of *function*, which serves its routes in `tidings.http.routes`.

    The endpoint is built when the first request arrives.
    """

    snapshots.prepare(lambda: stage().endpoint(function))

    @edge
    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        here = stage()
        request = request_from(event, here.settings.url_prefix, sampled_call())
        answer = respond(here.endpoint(function), request, here.settings.cors_origins)
        return response_from(answer)

    return handle
