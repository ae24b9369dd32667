"""Serve `/changefeeds` and `/changefeeds/stats`, and `/objects` and `/sums` of a feed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.model import filters
from tidings.core.state.sums import PageSums, of_types
from tidings.http.answers import JSON, json_answer
from tidings.http.request import Answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.model.feeds import FeedNames
    from tidings.core.state.sums import SumReader
    from tidings.core.triton.http import ChangeFeeds, ObjectPage
    from tidings.http.request import Request


@dataclass(frozen=True, slots=True)
class Resources:
    changefeeds: ChangeFeeds

    def __call__(self, request: Request) -> Answer:
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
    """Return *page* as JSON. The objects are copied unchanged."""
    return f'{{"objects":[{",".join(page.objects)}],"next":{json.dumps(page.after)}}}'


@dataclass(frozen=True, slots=True)
class FeedSums:
    reader: SumReader
    guard: Guard
    feeds: FeedNames

    def __call__(self, request: Request) -> Answer:
        feed = self.feeds.key(request.feed)
        allowed = NEEDS[request.route].admit(self.guard, feed, request.credential)
        requested = filters.from_query({"types": request.query.get("types")})
        sums = self.reader.read(feed)
        buckets = of_types(sums, allowed.narrow(requested).types)
        return json_answer(200, PageSums(sums.page, buckets).to_json())
