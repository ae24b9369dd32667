"""The routes that listeners read: `/changefeeds`, `/changefeeds/stats`, `/feeds/{feed}/objects`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidings.aws.gateway import http_events
from tidings.core.auth.guard import credential_from
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.triton.http import ChangeFeeds, ObjectPage


def answer(
    event: Mapping[str, Any], asked: ChangeFeeds, origins: tuple[str, ...]
) -> dict[str, Any]:
    """
    What the route of *event* tells.

    Raises:
        Rejected: who asks may not know, or asks wrongly.
    """
    feed = (event.get("pathParameters") or {}).get("feed", DEFAULT_FEED)
    given = credential_from((event.get("headers") or {}).get("authorization"))
    route: str = event["routeKey"]
    if route.endswith("/stats"):
        return http_events.told(event, 200, asked.stats(feed, given), origins)
    if not route.endswith("/objects"):
        return http_events.told(event, 200, asked.resources(feed), origins)
    query = event.get("queryStringParameters") or {}
    kind = query.get("type", "")
    if "id" in query:
        page = asked.one(feed, kind, query["id"], given)
    else:
        page = asked.objects(feed, kind, query.get("after", ""), given)
    return http_events.told_text(event, page_text(page), origins)


def page_text(page: ObjectPage) -> str:
    """The objects stand in it as the log has them."""
    return f'{{"objects":[{",".join(page.objects)}],"next":{json.dumps(page.after)}}}'
