"""`POST /feeds/{feed}/corrections`: a sync over HTTP, a request's corrections at a time."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.web import corrections as corrections_http
from tidings.aws.wiring import adapters, auth, corrections
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    try:
        answer = corrections_http.answer(event, corrections.corrector(), auth.guard())
    except TidingsError as error:
        return http_events.refused(event, error, origins)
    return http_events.told(event, 200, answer, origins)
