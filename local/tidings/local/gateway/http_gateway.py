"""
The HTTP API: routes of the blueprint to functions, CORS preflight, and the live page.

A function that streams is not invoked with an event; its requests go to its own server.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from tidings.aws.config.deployment import DEFAULT_PATH, HttpRoute
from tidings.core.auth.origins import cors_headers
from tidings.core.errors import Rejected, TooLarge
from tidings.local import clock
from tidings.local.gateway import asgi, http_events
from tidings.local.gateway.http_events import HttpRequest, HttpResponse
from tidings.local.lambdas.lambda_api import Invoke
from tidings.local.lambdas.stream_function import StreamFunction
from tidings.web import live_page
from tidings.web.answers import preflight_headers

BODY_BYTES_MAX = 10 * 1024 * 1024  # what an HTTP API takes
BODY_S = 60.0  # to send it: the largest one at 170 KB a second; who trickles is refused
INTEGRATION_S = 30.0  # an HTTP API gives an integration up after this


def _message(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    body = json.dumps({"message": text}, separators=(",", ":")).encode()
    return HttpResponse(status, [("content-type", "application/json"), *headers], body)


_NOT_HANDLED = _message(500, "Internal Server Error")
_NOT_FOUND = _message(404, "Not Found")
_TOO_SLOW = _message(503, "Service Unavailable")
# The rest of the body may still come: nothing else is read from this connection.
_BODY_TOO_SLOW = _message(408, "Request Timeout", ("connection", "close"))


class _Gone(Exception):
    """The client cut the connection within its body."""


class HttpGateway:
    """Serves the requests of one HTTP API."""

    def __init__(
        self,
        routes: Sequence[HttpRoute],
        invoke: Invoke,
        streams: Mapping[str, StreamFunction],
        *,
        console: Path,
        origins: Sequence[str],
        prefix: str = "",
    ) -> None:
        self._routes = [(_pattern(route.path), route) for route in routes]
        self._default = next((route for route in routes if route.path == DEFAULT_PATH), None)
        self._invoke = invoke
        self._streams = streams
        self._console = console
        self._origins = origins
        self._prefix = prefix.encode()

    async def serve(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Answer one request of the ASGI server."""
        scope = _below(scope, self._prefix)
        try:
            route, parameters = self._match(scope)
            if isinstance(route, HttpResponse):
                await asgi.respond(send, route)
            elif route.function in self._streams:
                await self._streams[route.function].proxy(scope, receive, send)
            else:
                request = await _request(scope, receive, route, parameters)
                await asgi.respond(send, await self._call(route.function, request))
        except TimeoutError:
            await asgi.respond(send, _BODY_TOO_SLOW)
        except Rejected as error:
            await asgi.respond(send, self._refusal(scope, error))
        except _Gone:
            pass  # half a body is none, and nobody is left to hear so

    def _match(self, scope: asgi.Scope) -> tuple[HttpRoute | HttpResponse, dict[str, str]]:
        path, method = _raw_path(scope), scope["method"]
        matches = [
            (route, match.groupdict())
            for pattern, route in self._routes
            if (match := pattern.fullmatch(path))
        ]
        for route, parameters in matches:
            if route.method == method:
                return route, {name: unquote(value) for name, value in parameters.items()}
        methods = sorted({route.method for route, _ in matches})
        if method == "OPTIONS" and methods:
            return self._preflight(scope, methods), {}
        if method in ("GET", "HEAD") and (page := live_page.answer(self._console, path)):
            body = b"" if method == "HEAD" else page.body.encode()
            return HttpResponse(page.status, list(page.headers.items()), body), {}
        if self._default is None:
            return _NOT_FOUND, {}
        return self._default, {}

    async def _call(self, function: str, request: HttpRequest) -> HttpResponse:
        event = http_events.encode(request, now_ms=clock.now_ms(), request_id=clock.new_uuid())
        payload = json.dumps(event, separators=(",", ":")).encode()
        # A client that went away, or an answer that comes too late, does not stop the function.
        running = asyncio.ensure_future(self._invoke(function, payload))
        try:
            answer = await asyncio.wait_for(asyncio.shield(running), INTEGRATION_S)
        except TimeoutError:
            return _TOO_SLOW
        if answer.error is not None:
            return _NOT_HANDLED
        try:
            return http_events.decode(answer.payload)
        except http_events.MalformedAnswer:
            return _NOT_HANDLED

    def _preflight(self, scope: asgi.Scope, methods: Sequence[str]) -> HttpResponse:
        headers = preflight_headers(_origin(scope), self._origins, methods)
        return HttpResponse(204, list(headers.items()))

    def _refusal(self, scope: asgi.Scope, error: Rejected) -> HttpResponse:
        body = json.dumps({"error": error.body()}, separators=(",", ":")).encode()
        headers = [("content-type", "application/json")]
        headers += cors_headers(_origin(scope), self._origins).items()
        return HttpResponse(error.status, headers, body)


def _origin(scope: asgi.Scope) -> str:
    return dict(asgi.headers_of(scope)).get("origin", "")


def _pattern(path: str) -> re.Pattern[str]:
    """`/feeds/{feed}/ops` as a pattern whose groups are the path's parameters."""
    parts = re.split(r"\{(\w+)\}", path)
    texts = [
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)"
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(texts))


def _below(scope: asgi.Scope, prefix: bytes) -> asgi.Scope:
    """*scope* without the *prefix* of its path, as a custom domain's mapping takes it off."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if not prefix or not (raw == prefix or raw.startswith(prefix + b"/")):
        return scope
    raw = raw.removeprefix(prefix) or b"/"
    return {**scope, "raw_path": raw, "path": unquote(raw.decode("latin-1"))}


def _raw_path(scope: asgi.Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


async def _request(
    scope: asgi.Scope, receive: asgi.Receive, route: HttpRoute, parameters: Mapping[str, str]
) -> HttpRequest:
    return HttpRequest(
        method=scope["method"],
        path=_raw_path(scope),
        query=scope["query_string"].decode("latin-1"),
        headers=asgi.headers_of(scope),
        body=await _body(receive),
        source_ip=asgi.client_of(scope),
        route=route.key,
        parameters=parameters,
    )


async def _body(receive: asgi.Receive) -> bytes:
    """
    Read the whole body even if it is too large: a client still sending hears no answer.

    Raises:
        TimeoutError: it took longer than BODY_S.
    """
    parts: list[bytes] = []
    size = 0
    more = True
    async with asyncio.timeout(BODY_S):
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
            more = message.get("more_body", False)
    if size > BODY_BYTES_MAX:
        rule = f"a request holds at most {BODY_BYTES_MAX} bytes"
        raise TooLarge(rule, field="body", value=size)
    return b"".join(parts)
