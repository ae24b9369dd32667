"""Convert requests to events of an HTTP API (payload format 2.0), and answers to responses."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl

from tidings.core.errors import Rejected
from tidings.http.asgi_request import joined
from tidings.twin import clock
from tidings.twin.options import ACCOUNT

API_ID = "local"

# The types that API Gateway passes as text; every other body is base64.
_TEXT_TYPES = ("application/json", "application/xml", "application/javascript")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """
    A received request. *route* is the matching route, *parameters* those of its path.

    Headers are in the order of the wire, with lower-case names.
    """

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str
    route: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


def refusal(error: Rejected, headers: Mapping[str, str] = MappingProxyType({})) -> HttpResponse:
    """Return the answer to a refused request, with the additional *headers*."""
    body = json.dumps({"error": error.body()}, separators=(",", ":")).encode()
    return HttpResponse(
        error.status, [("content-type", "application/json"), *headers.items()], body
    )


class MalformedAnswer(Exception):
    """API Gateway cannot convert the handler's answer to a response."""


def encode(request: HttpRequest, *, now_ms: int, request_id: str) -> dict[str, object]:
    """Return the event with which the function is invoked."""
    headers = joined(request.headers)
    cookies = headers.pop("cookie", None)
    body, is_base64 = _body(request.body, headers)
    event: dict[str, object] = {
        "version": "2.0",
        "routeKey": request.route,
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": _context(request, headers, now_ms, request_id),
        "isBase64Encoded": is_base64,
    }
    if cookies is not None:
        event["cookies"] = [cookie.strip() for cookie in cookies.split(";")]
    if request.query:
        event["queryStringParameters"] = joined(parse_qsl(request.query, keep_blank_values=True))
    if request.parameters:
        event["pathParameters"] = dict(request.parameters)
    if request.body:
        event["body"] = body
    return event


def decode(payload: bytes) -> HttpResponse:
    """
    Return the response encoded in a handler's answer.

    Raises:
        MalformedAnswer: the answer does not encode a response.
    """
    try:
        answer = json.loads(payload)
    except ValueError as error:
        raise MalformedAnswer(str(error)) from None
    if not isinstance(answer, dict) or "statusCode" not in answer:
        return HttpResponse(200, [("content-type", "application/json")], payload)
    try:
        headers = [(str(k).lower(), _text(v)) for k, v in (answer.get("headers") or {}).items()]
        headers += [("set-cookie", str(cookie)) for cookie in answer.get("cookies") or ()]
        body = _decode_body(answer)
        return HttpResponse(int(answer["statusCode"]), headers, body)
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedAnswer(str(error)) from None


def _decode_body(answer: Mapping[str, object]) -> bytes:
    body = answer.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        return json.dumps(body).encode()
    return base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _body(body: bytes, headers: Mapping[str, str]) -> tuple[str, bool]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_text = kind.startswith("text/") or kind in _TEXT_TYPES
    if is_text and "content-encoding" not in headers:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass  # declared as text but is not: pass it as bytes
    return base64.b64encode(body).decode(), True


def _context(
    request: HttpRequest, headers: Mapping[str, str], now_ms: int, request_id: str
) -> dict[str, object]:
    domain = headers.get("host", "localhost")
    return {
        "accountId": ACCOUNT,
        "apiId": API_ID,
        "domainName": domain,
        "domainPrefix": domain.partition(".")[0],
        "http": {
            "method": request.method,
            "path": request.path,
            "protocol": "HTTP/1.1",
            "sourceIp": request.source_ip,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": request_id,
        "routeKey": request.route,
        "stage": "$default",
        "time": clock.access_time(now_ms),
        "timeEpoch": now_ms,
    }
