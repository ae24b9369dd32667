"""The HTTP API of the twin: the routes of `deployment`, CORS preflight, and the page `/console`.

A request is converted to an event of payload format 2.0, with which a function is invoked. The
function's answer is converted to a response. A streaming function is not invoked with an event; its
requests are passed to its own server.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tests.twin import clock
from tests.twin.options import ACCOUNT
from tidings.aws.config.deployment import HttpRoute
from tidings.core.auth.origins import cors_headers
from tidings.core.errors import Rejected
from tidings.http.answers import preflight_headers
from tidings.http.asgi import (
    App,
    BodyBudget,
    Gone,
    Message,
    Receive,
    Send,
    arrival_of,
    below,
    body_of,
    check_announced,
    join_headers,
    raw_path,
)
from tidings.http.endpoints import status
from tidings.http.request import wants_page
from tidings.http.router import RouteTable

if TYPE_CHECKING:
    from tests.twin.runtime_api import Invoke

API_ID = "local"

# The content types that API Gateway passes as text, in addition to `text/*`; every other body is
# encoded in base64.
_TEXT_TYPES = ("application/json", "application/xml", "application/javascript")
INTEGRATION_S = 30.0  # API Gateway's time limit for an integration


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A received request. *route* is the key of the matching route.

    *parameters* are the parameters of the route's path. Headers are in the order in which they were
    received, with lower-case names.
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


def refuse(error: Rejected, headers: Mapping[str, str] = MappingProxyType({})) -> HttpResponse:
    """Return the answer to a refused request, with the additional *headers*."""
    body = json.dumps({"error": error.body()}, separators=(",", ":")).encode()
    return HttpResponse(
        error.status, [("content-type", "application/json"), *headers.items()], body
    )


class MalformedAnswer(Exception):
    """The handler's answer cannot be converted to a response."""


def encode_event(request: HttpRequest, *, now_ms: int, request_id: str) -> dict[str, object]:
    """Return the event with which the function is invoked."""
    headers = join_headers(request.headers)
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
        event["queryStringParameters"] = join_headers(
            parse_qsl(request.query, keep_blank_values=True)
        )
    if request.parameters:
        event["pathParameters"] = dict(request.parameters)
    if request.body:
        event["body"] = body
    return event


def decode_answer(payload: bytes) -> HttpResponse:
    """Return the response encoded in a handler's answer.

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
            pass  # the body is declared as text but is not text, so pass it as bytes
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


def headers_of(scope: Message) -> list[tuple[str, str]]:
    """Return the headers in the order in which they were received; a name may repeat."""
    return [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]


def client_of(scope: Message) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "127.0.0.1"


async def respond(send: Send, response: HttpResponse) -> None:
    headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in response.headers]
    headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def _message(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    body = json.dumps({"message": text}, separators=(",", ":")).encode()
    return HttpResponse(status, [("content-type", "application/json"), *headers], body)


_NOT_HANDLED = _message(500, "Internal Server Error")
_NOT_FOUND = _message(404, "Not Found")
_TOO_SLOW = _message(503, "Service Unavailable")
# This answer closes the connection, because the rest of the body may still arrive.
_BODY_TOO_SLOW = _message(408, "Request Timeout", ("connection", "close"))


class HttpGateway:
    """The gateway of one HTTP API."""

    def __init__(
        self,
        routes: Sequence[HttpRoute],
        invoke: Invoke,
        streams: Mapping[str, App],
        *,
        console: Path,
        origins: Sequence[str],
        prefix: str = "",
    ) -> None:
        self._routes = RouteTable(routes)
        self._invoke = invoke
        self._streams = streams
        self._console = console
        self._origins = origins
        self._prefix = prefix
        self._bodies = BodyBudget()

    async def serve(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request of the ASGI server."""
        scope = below(scope, self._prefix)
        try:
            route, parameters = self._match(scope)
            if isinstance(route, HttpResponse):
                await respond(send, route)
            elif route.function in self._streams:
                await self._streams[route.function](scope, receive, send)
            else:
                request = await self._request(scope, receive, route, parameters)
                await respond(send, await self._call(route.function, request))
        except TimeoutError:
            await respond(send, _BODY_TOO_SLOW)
        except Rejected as error:
            await respond(send, refuse(error, cors_headers(_origin(scope), self._origins)))
        except Gone:
            pass  # the client has disconnected; an incomplete body is discarded

    def _match(self, scope: Message) -> tuple[HttpRoute | HttpResponse, dict[str, str]]:
        path, method = raw_path(scope), scope["method"]
        if wants_page(method, path, dict(headers_of(scope))):
            query = scope["query_string"].decode("latin-1")
            page = status.front_page(self._prefix, query, has_console=True)
            return HttpResponse(page.status, list(page.headers.items()), b""), {}
        match = self._routes.match(method, path)
        if isinstance(match, list):
            answer = self._fallback(scope, path, match)
            if answer is not None:
                return answer, {}
            if self._routes.default is None:
                return _NOT_FOUND, {}
            match = self._routes.default
        return match.route, match.parameters

    def _fallback(self, scope: Message, path: str, methods: Sequence[str]) -> HttpResponse | None:
        method = scope["method"]
        if method == "OPTIONS" and methods:
            headers = preflight_headers(_origin(scope), self._origins, methods)
            return HttpResponse(204, list(headers.items()))
        if method not in ("GET", "HEAD"):
            return None
        page = status.live_page(self._console, path, self._prefix)
        if page is None:
            return None
        body = b"" if method == "HEAD" else page.body.encode()
        return HttpResponse(page.status, list(page.headers.items()), body)

    async def _call(self, function: str, request: HttpRequest) -> HttpResponse:
        event = encode_event(request, now_ms=clock.now_ms(), request_id=clock.new_uuid())
        payload = json.dumps(event, separators=(",", ":")).encode()
        # The function is not stopped if the client disconnects, or if the time limit has passed.
        running = asyncio.ensure_future(self._invoke(function, payload))
        try:
            answer = await asyncio.wait_for(asyncio.shield(running), INTEGRATION_S)
        except TimeoutError:
            return _TOO_SLOW
        if answer.error is not None:
            return _NOT_HANDLED
        try:
            return decode_answer(answer.payload)
        except MalformedAnswer:
            return _NOT_HANDLED

    async def _request(
        self, scope: Message, receive: Receive, route: HttpRoute, parameters: Mapping[str, str]
    ) -> HttpRequest:
        headers = headers_of(scope)
        check_announced(dict(headers))
        return HttpRequest(
            method=scope["method"],
            path=raw_path(scope),
            query=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=await body_of(receive, self._bodies, arrival_of(scope)),
            source_ip=client_of(scope),
            route=route.key,
            parameters=parameters,
        )


def _origin(scope: Message) -> str:
    return dict(headers_of(scope)).get("origin", "")
