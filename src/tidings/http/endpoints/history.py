"""Serve `GET /feeds/{feed}/history`: samples of the last hour (PROTOCOL 9.10)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.maintenance.history import History
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request


class NoHistory(Rejected, code="no_history", status=501):
    """This deployment keeps no history; CloudWatch has the metrics of a stage."""


@dataclass(frozen=True, slots=True)
class FeedHistory:
    """The endpoint of the samples of a feed. Without *history*, the deployment keeps none."""

    guard: Guard
    feeds: FeedNames
    history: History | None = None

    def __call__(self, request: Request) -> Answer:
        feed = self.feeds.key(request.feed)
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        if self.history is None:
            rule = "is kept only by `tidings serve`; CloudWatch has the metrics of a stage"
            raise NoHistory(rule, field="history")
        samples = [asdict(each) for each in self.history.samples(feed)]
        return json_answer(200, {"interval_ms": limits.SWEEP_EVERY_MS, "samples": samples})
