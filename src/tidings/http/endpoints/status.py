"""Serve `GET /status`, `/openapi.json` and `/schemas/{format}`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.http.answers import json_answer
from tidings.http.router import UnknownPath

if TYPE_CHECKING:
    from tidings.core.maintenance.status import Reporter
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class Status:
    reporter: Reporter
    feeds: Collection[str]
    prefix: str

    def __call__(self, request: Request) -> Answer:
        if request.route == "GET /openapi.json":
            from tidings.http.openapi.document import document  # most processes never need it

            return json_answer(200, document(self.feeds, self.prefix))
        if request.route == "GET /schemas/{format}":
            return _schema(request)
        try:
            return json_answer(200, self.reporter.report(request.feed))
        except Unavailable:
            return json_answer(503, self.reporter.unavailable(request.feed))


def _schema(request: Request) -> Answer:
    """
    Return the JSON Schema of the requested format.

    Raises:
        UnknownPath: the format is unknown.
    """
    from tidings.http.openapi.envelopes import SCHEMA_TYPE, served  # as above

    schema = served(request.parameters["format"])
    if schema is None:
        raise UnknownPath("no such path", field="path", value=request.path)
    answer = json_answer(200, schema)
    return replace(answer, headers={**answer.headers, "content-type": SCHEMA_TYPE})
