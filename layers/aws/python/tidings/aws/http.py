"""API Gateway's HTTP events (payload 2.0) and what we answer them."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from tidings.core.errors import Rejected, TidingsError, Unavailable
from tidings.core.feeds import DEFAULT_FEED
from tidings.core.ingesting import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS = re.compile(r"/(?:ops)?|/feeds/(?P<feed>[^/]+)/ops")
RETRY_AFTER_S = 1  # the log's partition recovers within a second when it throttles
_ALWAYS = {"cache-control": "no-cache, no-store, must-revalidate"}


class UnknownPath(Rejected):
    status = 404
    code = "unknown_path"


class WrongMethod(Rejected):
    status = 405
    code = "wrong_method"


def request_from(event: Mapping[str, Any]) -> Request:
    """
    The producer's request; a path without a feed means the default one.

    Raises:
        UnknownPath, WrongMethod: it came by the default route, which is no way to post.
    """
    asked = event["requestContext"]["http"]
    check_routed(asked["method"], asked["path"], "POST")
    headers = event.get("headers") or {}
    body = event.get("body") or ""
    return Request(
        feed=(event.get("pathParameters") or {}).get("feed", DEFAULT_FEED),
        body=base64.b64decode(body) if event.get("isBase64Encoded") else body.encode(),
        content_type=headers.get("content-type", ""),
        key=headers.get("idempotency-key"),
    )


def check_routed(method: str, path: str, wanted: str) -> re.Match[str]:
    """
    The parts of *path*, if it is one of ours and *method* is the one *wanted*.

    Raises:
        UnknownPath, WrongMethod: it is not.
    """
    found = PATHS.fullmatch(path)
    if found is None:
        raise UnknownPath("no such path", field="path", value=path)
    if method != wanted:
        raise WrongMethod(f"this path takes {wanted} here", field="method", value=method)
    return found


def wants_ids(event: Mapping[str, Any]) -> bool:
    prefer = (event.get("headers") or {}).get("prefer", "")
    return "return=representation" in prefer.replace(" ", "").lower()


def accepted(event: Mapping[str, Any], ids: list[str], origins: tuple[str, ...]) -> dict[str, Any]:
    if wants_ids(event):
        return _answer(event, 200, origins, {"ids": ids})
    return _answer(event, 204, origins, None)


def refused(
    event: Mapping[str, Any], error: TidingsError, origins: tuple[str, ...]
) -> dict[str, Any]:
    status, body = status_and_body(error)
    answer = _answer(event, status, origins, body)
    if status == 503:
        answer["headers"]["retry-after"] = str(RETRY_AFTER_S)
    return answer


def status_and_body(error: TidingsError) -> tuple[int, dict[str, object]]:
    """
    The one place where an error becomes a status.

    Raises:
        TidingsError: *error* is a fault of ours, not the client's or the weather's.
    """
    if isinstance(error, Rejected):
        return error.status, {"error": error.body()}
    if isinstance(error, Unavailable):
        message = "the log did not answer; try again, with an Idempotency-Key it is appended once"
        return 503, {"error": {"code": "unavailable", "message": message}}
    raise error


def allowed_origin(origin: str, origins: tuple[str, ...]) -> str | None:
    """What Access-Control-Allow-Origin says to a page from *origin*."""
    if "*" in origins:
        return "*"
    return origin if origin in origins else None


def _answer(
    event: Mapping[str, Any], status: int, origins: tuple[str, ...], body: object
) -> dict[str, Any]:
    headers = dict(_ALWAYS)
    origin = allowed_origin((event.get("headers") or {}).get("origin", ""), origins)
    if origin is not None:
        headers["access-control-allow-origin"] = origin
    answer: dict[str, Any] = {"statusCode": status, "headers": headers}
    if body is not None:
        headers["content-type"] = "application/json"
        answer["body"] = json.dumps(body, separators=(",", ":"))
    return answer
