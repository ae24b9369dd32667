"""Apply an operator's corrections, and return the rows that are needed to make corrections.

PROTOCOL 18 describes the requests.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidSync, TooLarge, WrongContentType, parse_integer
from tidings.core.model.json_body import NDJSON_TYPE, object_from
from tidings.core.model.operations import check_text
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Guard
    from tidings.core.sync.apply import Corrector
    from tidings.http.request import Answer, Request

_PAGE_MAX = 2**40 - 1  # a page number has ten hex digits in an event id


@dataclass(frozen=True, slots=True)
class Corrections:
    corrector: Corrector
    guard: Guard

    def __call__(self, request: Request) -> Answer:
        """Apply the corrections in the body of a request, or return the requested rows.

        Raises:
            Rejected: access is denied, or a correction is invalid. Corrections before the invalid
                one may have been applied.
            Unavailable: the last corrections may have been applied; the request can be repeated.
        """
        feed = self.corrector.feeds.key(request.feed)
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        answer = self._look if request.route.endswith("/rows") else self._apply
        return answer(feed, request)

    def _look(self, feed: str, request: Request) -> Answer:
        lookup = self.corrector.look(feed, _keys(object_from(request.content(), InvalidSync)))
        rows = [row._asdict() for row in lookup.rows]
        return json_answer(200, {"state": lookup.state, "rows": rows, "count": lookup.count})

    def _apply(self, feed: str, request: Request) -> Answer:
        if request.media_type != NDJSON_TYPE:
            kind = request.headers.get("content-type", "")
            raise WrongContentType(f"must be {NDJSON_TYPE}", field="Content-Type", value=kind)
        body = request.content()
        if len(body) > limits.REQUEST_BYTES_MAX:
            size = len(body)
            rule = f"a request holds at most {limits.REQUEST_BYTES_MAX} bytes, this one {size}"
            raise TooLarge(rule, field="body")
        through, lines = _through(request.query), body.splitlines()
        report = self.corrector.apply(feed, through, lines, run_ms=limits.AMEND_RUN_MS)
        return json_answer(200, asdict(report))


def _keys(fields: Mapping[str, Any]) -> list[str]:
    for name in sorted(fields.keys() - {"keys"}):
        raise InvalidSync("is not known here; the only field is keys", field=name)
    keys, most = fields.get("keys"), limits.LOOKUP_KEYS_MAX
    if not isinstance(keys, list) or not 0 < len(keys) <= most:
        raise InvalidSync(f"must be a list of 1 to {most} keys of objects", field="keys")
    for at, key in enumerate(keys):
        check_text(key, f"keys[{at}]", limits.STATE_KEY_BYTES_MAX)
    if len(set(keys)) < len(keys):
        raise InvalidSync("must not contain a key twice", field="keys")
    return keys


def _through(query: Mapping[str, str]) -> int:
    text = query.get("through", "")
    try:
        return parse_integer(text, 0, _PAGE_MAX)
    except ValueError:
        rule = "must be the page that the state had reached when the plan was made"
        raise InvalidSync(rule, field="through", value=text) from None
