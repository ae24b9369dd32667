"""Build responses from JSON values and errors, and add the headers that every response has.

Only a few responses may be reused by a shared cache in front of a feed (PROTOCOL 4.11). All others
have `no-store`. A response that waits for new entries (changes or pages) is shared, so that many
clients at the same cursor cost one request. A response is also shared if more entries follow it,
because its readers send another request in any case. The constants `CACHED_...` and `CACHE_...`
document how to configure the cache.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.origins import READING, check_change, cors_headers
from tidings.core.errors import (
    BelowFloor,
    Rejected,
    StorageFailed,
    TidingsError,
    TooManyRequests,
    Unavailable,
)
from tidings.core.model.operations import to_ascii_json
from tidings.core.version import VERSION
from tidings.http.request import (
    ACCEPTED_ENCODING,
    CHANGEAGENT,
    Answer,
    UnsupportedEncoding,
    WrongMethod,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.auth.guard import Allowed
    from tidings.http.request import Endpoint, Request

JSON = "application/json"
CHALLENGE = 'Basic realm="tidings", charset="UTF-8"'  # browsers ask their user for the password
PAGE_CHALLENGE = 'Bearer realm="tidings"'  # browsers ignore it
CHANGEAGENT_CHALLENGE = 'Basic realm="changeagent"'
RETRY_AFTER_S = 1  # a throttled partition of the log recovers within a second
# Time for which browsers cache a preflight response. Changed origins take effect after this time.
PREFLIGHT_AGE_S = 600
CORS_HEADERS = (
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "prefer",
    "traceparent",
)
ALWAYS = {
    "server": f"tidings/{VERSION}",  # API Gateway and function URLs may replace it
    "cache-control": "no-cache, no-store, must-revalidate",
}
_UNAVAILABLE = (
    "the log did not answer; try again: with an Idempotency-Key, a request is appended once"
)
# The paths of responses that may be shared; `*` is any path segment.
CACHED_PATHS = ("/changes", "/feeds/*/changes", "/feeds/*/pages")
# The request headers on which a shared response depends, in addition to path and query. Clients
# with different credentials never share a response.
CACHED_CREDENTIAL = "Authorization"
CACHE_KEY = ("Accept-Encoding", CACHED_CREDENTIAL, "Origin")
# There is no `max-age`. A browser must not cache these responses, because a client that waits again
# sends the same request again. With `max-age=0`, CloudFront might not let other requests wait for
# the same response.
CACHE_CONTROL = f"s-maxage={limits.SHARED_S}"
_SHARED: Mapping[str, str] = {"cache-control": CACHE_CONTROL, "vary": ", ".join(CACHE_KEY)}
_NOT_SHARED: Mapping[str, str] = {}


def respond(endpoint: Endpoint, request: Request, origins: Sequence[str]) -> Answer:
    """Return the response of *endpoint* to *request*.

    A web page may change something only if *origins* lists the origin of the page.

    Raises:
        TidingsError: *endpoint* raised an internal error, which `refusal` cannot answer.
    """
    try:
        if request.method not in READING:
            check_change(request.headers, origins, has_body=request.has_body)
        answer = endpoint(request)
    except TidingsError as error:
        answer = refusal(error, path=request.path)
    return with_headers(answer, request.headers, origins)


def with_headers(
    answer: Answer, request_headers: Mapping[str, str], origins: Sequence[str]
) -> Answer:
    """Return *answer* with the headers that every response to a request with *request_headers* has.

    A browser asks its user for a password after a Basic challenge. A web page that has its own form
    for the password sends `X-Requested-With`, and receives a challenge that browsers ignore.
    """
    headers = {**headers_for(request_headers.get("origin", ""), origins), **answer.headers}
    if "www-authenticate" in headers and "x-requested-with" in request_headers:
        headers["www-authenticate"] = PAGE_CHALLENGE
    return answer._replace(headers=headers)


def json_answer(status: int, body: object) -> Answer:
    headers = {"content-type": JSON, **_error_headers(status)}
    return Answer(status, headers, to_ascii_json(body))


def accepted_answer(request: Request, ids: list[str]) -> Answer:
    """Respond to an accepted *request*, with the *ids* of the operations if requested."""
    return json_answer(200, {"ids": ids}) if wants_ids(request) else Answer(204)


def wants_ids(request: Request) -> bool:
    """Return True if *request* requests the ids of its operations."""
    prefer = request.headers.get("prefer")
    return prefer is not None and "return=representation" in prefer.replace(" ", "").lower()


def refusal(error: TidingsError, *, path: str = "", as_oplog: bool = False) -> Answer:
    """Return *error* as a response to a request for *path*, without a body if *as_oplog*.

    The errors on changeagent's paths have another format; see `changeagent_refusal`.

    Raises:
        TidingsError: *error* is internal: neither a rejected request nor an unavailable store.
    """
    if CHANGEAGENT.fullmatch(path):
        return changeagent_refusal(error)
    if isinstance(error, Rejected):
        status, body = error.status, error.body()
    elif isinstance(error, Unavailable):
        status, body = 503, unavailable_body(_unavailable_rule(error), code=error.code)
    else:
        raise error
    headers = _refusal_headers(error, status)
    if as_oplog:
        from tidings.core.settings.profiles import oplog_status  # most feeds never need this module

        return Answer(oplog_status(error, status), headers)
    headers["content-type"] = JSON
    return Answer(status, headers, json.dumps({"error": body}, separators=(",", ":")))


def _unavailable_rule(error: Unavailable) -> str:
    return str(error) if isinstance(error, StorageFailed) else _UNAVAILABLE


def unavailable_body(rule: str, field: str = "", code: str = Unavailable.code) -> dict[str, object]:
    """Return the error of a store that did not answer, with the keys of `Rejected.body`."""
    message = f"{field}: {rule}" if field else rule
    error = {"code": code, "message": message, "field": field}
    return {**error, "value": "", "rule": rule}


def changeagent_answer(status: int, body: object) -> Answer:
    """Return *body* as JSON with the headers that changeagent sent."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return Answer(status, {"content-type": JSON}, text)


def changeagent_refusal(error: TidingsError) -> Answer:
    """Return *error* as a JSON response on changeagent's paths; a 401 has no body.

    Raises:
        TidingsError: *error* is internal: neither a rejected request nor an unavailable store.
    """
    if isinstance(error, Rejected) and error.status == 401:
        return Answer(401, {"www-authenticate": CHANGEAGENT_CHALLENGE})
    if isinstance(error, Rejected):
        status, body = error.status, {"error": str(error)}
    elif isinstance(error, Unavailable):
        status, body = 503, {"error": _unavailable_rule(error)}
    else:
        raise error
    floor = {"floor": error.floor} if isinstance(error, BelowFloor) else {}
    answer = changeagent_answer(status, {**body, **floor})
    return Answer(status, {**answer.headers, **_refusal_headers(error, status)}, answer.body)


def _refusal_headers(error: TidingsError, status: int) -> dict[str, str]:
    headers = _error_headers(status)
    if isinstance(error, WrongMethod):
        headers["allow"] = error.allow
    if isinstance(error, TooManyRequests):
        headers["retry-after"] = str(error.retry_after_s)
    if isinstance(error, UnsupportedEncoding):
        headers["accept-encoding"] = ACCEPTED_ENCODING
    return headers


def _error_headers(status: int) -> dict[str, str]:
    """Return the headers that say how a client can continue after an error."""
    if status == 401:
        return {"www-authenticate": CHALLENGE}
    return {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}


def headers_for(origin: str, origins: Sequence[str]) -> dict[str, str]:
    """Return the headers of every response to a web page from *origin*."""
    return {**ALWAYS, **cors_headers(origin, origins)}


def preflight_headers(
    origin: str, origins: Sequence[str], methods: Sequence[str], more: Sequence[str] = ()
) -> dict[str, str]:
    """Return the headers of a CORS preflight response to a web page from *origin*.

    *more* are request headers that the path allows in addition to `CORS_HEADERS`.
    """
    return {
        **cors_headers(origin, origins),
        "access-control-allow-methods": ", ".join([*methods, "OPTIONS"]),
        "access-control-allow-headers": ", ".join((*CORS_HEADERS, *more)),
        "access-control-max-age": str(PREFLIGHT_AGE_S),
    }


def sharing(allowed: Allowed, *, waits: bool, full: bool) -> Mapping[str, str]:
    """Return the headers that let caches share a response; none if only one client may get it.

    *waits* is True if the request allows the response to wait for new entries. *full* is True if
    more entries follow, so that the reader sends another request. Responses for a key with a rate
    are never shared, because each of its requests must reach this process to be counted.
    """
    if allowed.admission.rate or not (waits or full):
        return _NOT_SHARED
    return _SHARED
