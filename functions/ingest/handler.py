"""POST of operations: an API Gateway event becomes a request, the ids become an answer."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway import http_events
from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.web import changes, links
from tidings.aws.wiring import adapters, core, ingest
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins, prefix = adapters.settings().cors_origins, adapters.settings().url_prefix
    event = http_events.below(event, prefix)
    asked = event["requestContext"]["http"]
    if links.wants_links(asked["method"], asked["path"], links.headers_of(event)):
        base = links.base_url(links.headers_of(event), prefix)
        return changes.told_json(event, links.root(base), origins)
    try:
        ids = ingest.ingester().accept(http_events.request_from(event))
    except TidingsError as error:
        feed = http_events.feed_of(asked["path"])
        return http_events.refused(
            event, error, origins, as_oplog=core.compatibility().are_oplogs(feed)
        )
    return http_events.accepted(event, ids, origins)
