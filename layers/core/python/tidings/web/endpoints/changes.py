"""
Changes over HTTP, as changeagent's clients post them; and how all its routes answer.

An error is `{"error":"..."}` here, as they know it, and a 401 has no body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import BelowFloor, Rejected, TidingsError, TooManyRequests, Unavailable
from tidings.web.answers import JSON, RETRY_AFTER_S
from tidings.web.content_encoding import ACCEPTED, UnsupportedEncoding
from tidings.web.endpoints.posting import posted
from tidings.web.request import Answer

if TYPE_CHECKING:
    from tidings.core.changeagent.submit import Proposer
    from tidings.web.request import Request

REALM = 'Basic realm="changeagent"'
TEXT, YAML = "text/plain", "application/yaml"
_UNAVAILABLE = "the store did not answer; try again, with an Idempotency-Key it is appended once"


@dataclass(frozen=True, slots=True)
class Changes:
    """`POST /changes`: the number of the change is the answer."""

    proposer: Proposer

    def __call__(self, request: Request) -> Answer:
        try:
            return json_answer(200, {"_id": self.proposer.accept(posted(request))})
        except TidingsError as error:
            return refusal(error)


def json_answer(status: int, body: object) -> Answer:
    return Answer(status, {"content-type": JSON}, json_text(body))


def refusal(error: TidingsError) -> Answer:
    """
    *error* as an answer.

    Raises:
        TidingsError: *error* is a fault of ours, neither the client's nor of a store that is away.
    """
    if isinstance(error, Unavailable):
        headers = {"content-type": JSON, "retry-after": str(RETRY_AFTER_S)}
        return Answer(503, headers, json_text({"error": _UNAVAILABLE}))
    if not isinstance(error, Rejected):
        raise error
    if error.status == 401:
        return Answer(401, {"www-authenticate": REALM})
    body: dict[str, object] = {"error": str(error)}
    if isinstance(error, BelowFloor):
        body["floor"] = error.floor
    headers = {"content-type": JSON}
    if isinstance(error, TooManyRequests):
        headers["retry-after"] = str(error.retry_after_s)
    if isinstance(error, UnsupportedEncoding):
        headers["accept-encoding"] = ACCEPTED
    return Answer(error.status, headers, json_text(body))


def json_text(body: object) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
