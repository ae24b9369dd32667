"""Read endpoints for listeners: `/changefeeds`, `/changefeeds/stats`, `/feeds/{feed}/objects`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.http.answers import JSON, json_answer
from tidings.http.request import Answer

if TYPE_CHECKING:
    from tidings.core.triton.http import ChangeFeeds, ObjectPage
    from tidings.http.request import Request


@dataclass(frozen=True, slots=True)
class Resources:
    changefeeds: ChangeFeeds

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            Rejected: the credential does not permit it, or the request is invalid.
        """
        feed, credential = request.feed, request.credential
        if request.route.endswith("/stats"):
            return json_answer(200, self.changefeeds.stats(feed, credential))
        if not request.route.endswith("/objects"):
            return json_answer(200, self.changefeeds.resources(feed))
        kind = request.query.get("type", "")
        if "id" in request.query:
            page = self.changefeeds.one(feed, kind, request.query["id"], credential)
        else:
            after = request.query.get("after", "")
            page = self.changefeeds.objects(feed, kind, after, credential)
        return Answer(200, {"content-type": JSON}, page_text(page))


def page_text(page: ObjectPage) -> str:
    """Return *page* as JSON; the objects are copied from the log unchanged."""
    return f'{{"objects":[{",".join(page.objects)}],"next":{json.dumps(page.after)}}}'
