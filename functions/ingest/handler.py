"""POST of operations: an API Gateway event becomes a request, the ids become an answer."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, http
from tidings.aws.telemetry import edge
from tidings.core.errors import TidingsError


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        ids = app.ingester().accept(http.request_from(event))
    except TidingsError as error:
        feed = http.feed_of(event["requestContext"]["http"]["path"])
        return http.refused(event, error, origins, as_oplog=app.manners().are_oplogs(feed))
    return http.accepted(event, ids, origins)
