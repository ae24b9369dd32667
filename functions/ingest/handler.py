"""POST of operations: an API Gateway event becomes a request, the ids become an answer."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, changes_http, http, links
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins, prefix = app.settings().cors_origins, app.settings().url_prefix
    event = http.below(event, prefix)
    asked = event["requestContext"]["http"]
    if links.wants_links(asked["method"], asked["path"], links.headers_of(event)):
        base = links.base_url(links.headers_of(event), prefix)
        return changes_http.told_json(event, links.root(base), origins)
    try:
        ids = app.ingester().accept(http.request_from(event))
    except TidingsError as error:
        feed = http.feed_of(asked["path"])
        return http.refused(event, error, origins, as_oplog=app.manners().are_oplogs(feed))
    return http.accepted(event, ids, origins)
