"""Corrections that an operator sends over HTTP (PROTOCOL 18)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidSync, TooLarge, WrongContentType
from tidings.core.model.feeds import check_known
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.model.numbers import whole
from tidings.web.answers import json_answer
from tidings.web.routes import NEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Guard
    from tidings.core.sync.apply import Corrector
    from tidings.web.request import Answer, Request

_PAGE_MAX = 2**40 - 1  # ten hex digits of an event id


@dataclass(frozen=True, slots=True)
class Corrections:
    corrector: Corrector
    guard: Guard

    def __call__(self, request: Request) -> Answer:
        """
        Apply the corrections in the body of a request; what became of them.

        Raises:
            Rejected: not let in, or one of the corrections is none; those before it may be applied.
            Unavailable: nobody knows whether the last ones were applied; a repeat finds out.
        """
        feed = check_known(request.feed, self.corrector.feeds)
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        if request.media_type != NDJSON_TYPE:
            kind = request.headers.get("content-type", "")
            raise WrongContentType(f"must be {NDJSON_TYPE}", field="Content-Type", value=kind)
        if len(request.body) > limits.REQUEST_BYTES_MAX:
            size = len(request.body)
            rule = f"a request holds at most {limits.REQUEST_BYTES_MAX} bytes, this one {size}"
            raise TooLarge(rule, field="body")
        through, lines = _through(request.query), request.body.splitlines()
        report = self.corrector.apply(feed, through, lines, run_ms=limits.AMEND_RUN_MS)
        return json_answer(200, asdict(report))


def _through(query: Mapping[str, str]) -> int:
    text = query.get("through", "")
    try:
        return whole(text, 0, _PAGE_MAX)
    except ValueError:
        rule = "must be the page that the state had reached when the plan was made"
        raise InvalidSync(rule, field="through", value=text) from None
