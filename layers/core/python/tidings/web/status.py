"""`GET /status`: how a feed is; `GET /openapi.json`: what may be asked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.web.answers import json_answer

if TYPE_CHECKING:
    from tidings.core.maintenance.status import Reporter
    from tidings.web.request import Answer, Request


@dataclass(frozen=True, slots=True)
class Status:
    reporter: Reporter
    feeds: Collection[str]
    prefix: str

    def __call__(self, request: Request) -> Answer:
        if request.route == "GET /openapi.json":
            from tidings.web.openapi import document  # most processes never need it

            return json_answer(200, document(self.feeds, self.prefix))
        try:
            return json_answer(200, self.reporter.report(request.feed))
        except Unavailable:
            return json_answer(503, self.reporter.unavailable(request.feed))
