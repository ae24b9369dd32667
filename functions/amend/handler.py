"""`POST /feeds/{feed}/corrections`: a sync over HTTP, a request's corrections at a time."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, corrections_app, corrections_http, http
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        answer = corrections_http.answer(event, corrections_app.corrector(), app.guard())
    except TidingsError as error:
        return http.refused(event, error, origins)
    return http.told(event, 200, answer, origins)
