"""Corrections that an operator sends over HTTP (PROTOCOL 18)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.aws.gateway.http_events import routed_request
from tidings.aws.web.routes import NEEDS
from tidings.core import limits
from tidings.core.errors import InvalidSync, TooLarge, WrongContentType
from tidings.core.model.feeds import check_known
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.core.model.numbers import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Guard
    from tidings.core.sync.apply import Corrector

_PAGE_MAX = 2**40 - 1  # ten hex digits of an event id


def answer(event: Mapping[str, Any], corrector: Corrector, guard: Guard) -> dict[str, Any]:
    """
    Apply the corrections in the body of a request; what became of them.

    Raises:
        Rejected: not let in, or one of the corrections is none; those before it may be applied.
        Unavailable: nobody knows whether the last ones were applied; a repeat finds out.
    """
    request = routed_request(event)
    feed = check_known(request.feed, corrector.feeds)
    NEEDS[event["routeKey"]].admit(guard, feed, request.credential)
    if request.content_type.partition(";")[0].strip().lower() != NDJSON_TYPE:
        raise WrongContentType(
            f"must be {NDJSON_TYPE}", field="Content-Type", value=request.content_type
        )
    if len(request.body) > limits.REQUEST_BYTES_MAX:
        size = len(request.body)
        rule = f"a request holds at most {limits.REQUEST_BYTES_MAX} bytes, this one {size}"
        raise TooLarge(rule, field="body")
    through = _through(event.get("queryStringParameters") or {})
    lines = request.body.splitlines()
    return asdict(corrector.apply(feed, through, lines, run_ms=limits.AMEND_RUN_MS))


def _through(query: Mapping[str, str]) -> int:
    text = query.get("through", "")
    try:
        return whole(text, 0, _PAGE_MAX)
    except ValueError:
        rule = "must be the page that the state had reached when the plan was made"
        raise InvalidSync(rule, field="through", value=text) from None
