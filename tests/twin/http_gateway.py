"""The HTTP API of the twin: the routes of `deployment`, and CORS preflight.

A request is converted to an event of payload format 2.0, with which a function is invoked. The
function's answer is converted to a response. A streaming function is not invoked with an event; its
requests are passed to its own server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tests.twin.environment import ACCOUNT
from tidings.aws.config.deployment import HttpRoute
from tidings.aws.effects import now_ms
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
    body_of,
    check_announced,
    join_headers,
    raw_path,
    send_response,
)
from tidings.http.router import RouteTable

if TYPE_CHECKING:
    from tests.twin.lambda_api import Invoke

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


class MalformedAnswer(Exception):
    """The handler's answer cannot be converted to a response."""


def access_time(ms: int) -> str:
    """Return *ms* in the time format of API Gateway's events."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")


def encode_event(request: HttpRequest, *, now_ms: int, request_id: str) -> dict[str, object]:
    """Return the event with which the function is invoked."""
    headers = join_headers(request.headers)
    cookies = headers.pop("cookie", None)
    body, is_base64 = _body(request.body, headers)
    domain = headers.get("host", "localhost")
    event: dict[str, object] = {
        "version": "2.0",
        "routeKey": request.route,
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "local",
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
            "time": access_time(now_ms),
            "timeEpoch": now_ms,
        },
        "isBase64Encoded": is_base64,
    }
    if cookies is not None:
        event["cookies"] = [cookie.strip() for cookie in cookies.split(";")]
    if request.query:
        pairs = parse_qsl(request.query, keep_blank_values=True)
        event["queryStringParameters"] = join_headers(pairs)
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
        if not isinstance(answer, dict) or "statusCode" not in answer:
            return HttpResponse(200, [("content-type", "application/json")], payload)
        headers = [(str(k).lower(), _text(v)) for k, v in (answer.get("headers") or {}).items()]
        headers += [("set-cookie", str(cookie)) for cookie in answer.get("cookies") or ()]
        body = answer.get("body") or ""
        content = base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()
        return HttpResponse(int(answer["statusCode"]), headers, content)
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedAnswer(str(error)) from None


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


def message(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    """Return an answer of API Gateway itself."""
    body = json.dumps({"message": text}, separators=(",", ":")).encode()
    return HttpResponse(status, [("content-type", "application/json"), *headers], body)


_NOT_HANDLED = message(500, "Internal Server Error")


class HttpGateway:
    """The gateway of one HTTP API."""

    def __init__(
        self,
        routes: Sequence[HttpRoute],
        invoke: Invoke,
        streams: Mapping[str, App],
        *,
        origins: Sequence[str],
    ) -> None:
        self._routes = RouteTable(routes)
        self._invoke = invoke
        self._streams = streams
        self._origins = origins
        self._bodies = BodyBudget()

    async def serve(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request of the ASGI server."""
        origin = dict(headers_of(scope)).get("origin", "")
        path, method = raw_path(scope), scope["method"]
        match = self._routes.match(method, path)
        if isinstance(match, list) and method == "OPTIONS" and match:
            preflight = preflight_headers(origin, self._origins, match)
            await respond(send, HttpResponse(204, list(preflight.items())))
            return
        if isinstance(match, list):
            assert self._routes.default is not None
            match = self._routes.default
        try:
            if match.route.function in self._streams:
                await self._streams[match.route.function](scope, receive, send)
                return
            headers = headers_of(scope)
            check_announced(dict(headers))
            request = HttpRequest(
                method=method,
                path=path,
                query=scope["query_string"].decode("latin-1"),
                headers=headers,
                body=await body_of(receive, self._bodies, arrival_of(scope)),
                source_ip=client_of(scope),
                route=match.route.key,
                parameters=match.parameters,
            )
            await respond(send, await self._call(match.route.function, request))
        except TimeoutError:
            # The connection is closed, because the rest of the body may still arrive.
            await respond(send, message(408, "Request Timeout", ("connection", "close")))
        except Rejected as error:
            refusal = {"content-type": "application/json", **cors_headers(origin, self._origins)}
            body = json.dumps({"error": error.body()}, separators=(",", ":")).encode()
            await send_response(send, error.status, refusal, body)
        except Gone:
            pass  # the client has disconnected; an incomplete body is discarded

    async def _call(self, function: str, request: HttpRequest) -> HttpResponse:
        event = encode_event(request, now_ms=now_ms(), request_id=str(uuid.uuid4()))
        payload = json.dumps(event, separators=(",", ":")).encode()
        # The function is not stopped if the client disconnects, or if the time limit has passed.
        running = asyncio.ensure_future(self._invoke(function, payload))
        try:
            answer = await asyncio.wait_for(asyncio.shield(running), INTEGRATION_S)
            return _NOT_HANDLED if answer.error is not None else decode_answer(answer.payload)
        except TimeoutError:
            return message(503, "Service Unavailable")
        except MalformedAnswer:
            return _NOT_HANDLED
