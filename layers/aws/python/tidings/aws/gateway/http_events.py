"""API Gateway's HTTP events (payload 2.0) and what we answer them."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidings.core.auth.guard import credential_from
from tidings.core.auth.origins import cors_headers
from tidings.core.errors import Rejected, TidingsError, TooManyRequests, Unavailable
from tidings.core.ingest.ingest import Request
from tidings.core.ingest.oplog_compat import oplog_status
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATHS = re.compile(r"/(?:ops)?|/feeds/(?P<feed>[^/]+)/ops")
CHALLENGE = 'Basic realm="tidings", charset="UTF-8"'  # browsers ask their user for the password
RETRY_AFTER_S = 1  # the log's partition recovers within a second when it throttles
PREFLIGHT_AGE_S = 600  # no browser refuses it; a changed list of origins counts ten minutes later
CORS_HEADERS = ("authorization", "content-type", "idempotency-key", "last-event-id", "prefer")
_ALWAYS = {
    "server": f"tidings/{VERSION}",  # API Gateway and function URLs may say something else there
    "cache-control": "no-cache, no-store, must-revalidate",
}
_PARAMETER = re.compile(r"\{\w+\}")


class UnknownPath(Rejected):
    status = 404
    code = "unknown_path"


class WrongMethod(Rejected):
    """*allow* is for the header of that name."""

    status = 405
    code = "wrong_method"

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"this path takes {allow} here", field="method", value=method)
        self.allow = allow


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as an answer; *body* is empty where a feed answers as oplog did."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


def request_from(event: Mapping[str, Any]) -> Request:
    """
    The producer's request; a path without a feed means the default one.

    Raises:
        UnknownPath, WrongMethod: it came by the default route, which is no way to post.
    """
    asked = event["requestContext"]["http"]
    check_routed(asked["method"], asked["path"], "POST")
    return routed_request(event)


def routed_request(event: Mapping[str, Any]) -> Request:
    """What is posted by a route of its own."""
    headers = event.get("headers") or {}
    body = event.get("body") or ""
    return Request(
        feed=(event.get("pathParameters") or {}).get("feed", DEFAULT_FEED),
        body=base64.b64decode(body) if event.get("isBase64Encoded") else body.encode(),
        content_type=headers.get("content-type", ""),
        key=headers.get("idempotency-key"),
        credential=credential_from(headers.get("authorization")),
    )


def below(event: dict[str, Any], prefix: str) -> dict[str, Any]:
    """*event* as if the feed were served at the root, where a custom domain has it elsewhere."""
    path = event["requestContext"]["http"]["path"]
    if not prefix or not (path == prefix or path.startswith(f"{prefix}/")):
        return event
    asked = event["requestContext"]["http"] | {"path": path.removeprefix(prefix) or "/"}
    return {**event, "requestContext": {**event["requestContext"], "http": asked}}


def check_routed(method: str, path: str, wanted: str) -> re.Match[str]:
    """
    The parts of *path*, if it is one of ours and *method* is the one *wanted*.

    Raises:
        UnknownPath, WrongMethod: it is not.
    """
    found = PATHS.fullmatch(path)
    if found is not None and method == wanted:
        return found
    methods = _methods_of(path)
    if not methods:
        raise UnknownPath("no such path", field="path", value=path)
    # Without the refused one: it may be served, but not at this address.
    raise WrongMethod(method, ", ".join([*sorted(methods - {method}), "OPTIONS"]))


def _methods_of(path: str) -> set[str]:
    """What the routes of the blueprint take at *path*; only a refusal has to load them."""
    from tidings.aws.web.routes import HTTP_ROUTES

    return {
        route.method
        for route in HTTP_ROUTES
        if re.fullmatch(_PARAMETER.sub("[^/]+", route.path), path)
    }


def feed_of(path: str) -> str:
    """The feed that *path* names, else the default one."""
    found = PATHS.fullmatch(path)
    return (found and found["feed"]) or DEFAULT_FEED


def wants_ids(event: Mapping[str, Any]) -> bool:
    prefer = (event.get("headers") or {}).get("prefer", "")
    return "return=representation" in prefer.replace(" ", "").lower()


def accepted(event: Mapping[str, Any], ids: list[str], origins: tuple[str, ...]) -> dict[str, Any]:
    if wants_ids(event):
        return _answer(event, 200, origins, {"ids": ids})
    return _answer(event, 204, origins, None)


def told(
    event: Mapping[str, Any], status: int, body: object, origins: tuple[str, ...]
) -> dict[str, Any]:
    """An answer about the feed itself."""
    answer = _answer(event, status, origins, body)
    answer["headers"] |= error_headers(status)
    return answer


def told_text(event: Mapping[str, Any], text: str, origins: tuple[str, ...]) -> dict[str, Any]:
    """As `told`, of JSON that is spelled already."""
    answer = _answer(event, 200, origins, None)
    answer["headers"]["content-type"] = "application/json"
    return {**answer, "body": text}


def refused(
    event: Mapping[str, Any],
    error: TidingsError,
    origins: tuple[str, ...],
    *,
    as_oplog: bool = False,
) -> dict[str, Any]:
    refusal = refusal_of(error, as_oplog=as_oplog)
    headers = {**headers_for(_origin(event), origins), **refusal.headers}
    return {"statusCode": refusal.status, "headers": headers, "body": refusal.body}


def error_headers(status: int) -> dict[str, str]:
    """What a client needs beside the body to go on."""
    if status == 401:
        return {"www-authenticate": CHALLENGE}
    return {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}


def refusal_of(error: TidingsError, *, as_oplog: bool = False) -> Refusal:
    """
    The one place where an error becomes an answer.

    Raises:
        TidingsError: *error* is a fault of ours, not the client's or the weather's.
    """
    if isinstance(error, Rejected):
        status, body = error.status, error.body()
    elif isinstance(error, Unavailable):
        message = "the log did not answer; try again, with an Idempotency-Key it is appended once"
        status, body = 503, {"code": "unavailable", "message": message}
    else:
        raise error
    headers = error_headers(status)
    if isinstance(error, WrongMethod):
        headers["allow"] = error.allow
    if isinstance(error, TooManyRequests):
        headers["retry-after"] = str(error.retry_after_s)
    if as_oplog:
        return Refusal(oplog_status(error, status), headers)
    headers["content-type"] = "application/json"
    return Refusal(status, headers, json.dumps({"error": body}, separators=(",", ":")))


def headers_for(origin: str, origins: Sequence[str]) -> dict[str, str]:
    """What every answer to a page from *origin* carries, whatever it says."""
    return {**_ALWAYS, **cors_headers(origin, origins)}


def preflight_headers(
    origin: str, origins: Sequence[str], methods: Sequence[str]
) -> dict[str, str]:
    """The answer to OPTIONS: what a page from *origin* may send."""
    return {
        **cors_headers(origin, origins),
        "access-control-allow-methods": ", ".join([*methods, "OPTIONS"]),
        "access-control-allow-headers": ", ".join(CORS_HEADERS),
        "access-control-max-age": str(PREFLIGHT_AGE_S),
    }


def _answer(
    event: Mapping[str, Any], status: int, origins: tuple[str, ...], body: object
) -> dict[str, Any]:
    headers = headers_for(_origin(event), origins)
    answer: dict[str, Any] = {"statusCode": status, "headers": headers}
    if body is not None:
        headers["content-type"] = "application/json"
        answer["body"] = json.dumps(body, separators=(",", ":"))
    return answer


def _origin(event: Mapping[str, Any]) -> str:
    return str((event.get("headers") or {}).get("origin", ""))
