"""Serve the sums of a feed's state: `GET /feeds/{feed}/sums` (PROTOCOL 20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.model import filters
from tidings.core.model.feeds import check_known
from tidings.core.state.sums import ToldSums, of_types
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.state.sums import SumReader
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class FeedSums:
    reader: SumReader
    guard: Guard
    feeds: frozenset[str]

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            Rejected: the credential does not permit it, or the request is invalid.
        """
        feed = check_known(request.feed, self.feeds)
        allowed = NEEDS[request.route].admit(self.guard, feed, request.credential)
        requested = filters.from_query({"types": request.query.get("types")})
        sums = self.reader.read(feed)
        buckets = of_types(sums, allowed.narrowed(requested).types)
        return json_answer(200, ToldSums(sums.page, buckets).to_json())
