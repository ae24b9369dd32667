"""
The HTTP API: routes of the blueprint, CORS preflight, and the live page.

A streaming function is not invoked with an event; its requests are passed to its own server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidings.aws.config.deployment import HttpRoute
from tidings.core.auth.origins import cors_headers
from tidings.core.errors import Rejected
from tidings.http.answers import preflight_headers
from tidings.http.asgi import Message, Receive, Send
from tidings.http.asgi_request import (
    BodyBudget,
    Gone,
    arrival_of,
    below,
    body_of,
    check_announced,
    raw_path,
)
from tidings.http.endpoints import live_page
from tidings.http.router import RouteTable
from tidings.twin import clock
from tidings.twin.gateway import asgi, http_events
from tidings.twin.gateway.http_events import HttpRequest, HttpResponse
from tidings.twin.lambdas.lambda_api import Invoke
from tidings.twin.lambdas.stream_function import StreamFunction

INTEGRATION_S = 30.0  # API Gateway's time limit for an integration


def _message(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    body = json.dumps({"message": text}, separators=(",", ":")).encode()
    return HttpResponse(status, [("content-type", "application/json"), *headers], body)


_NOT_HANDLED = _message(500, "Internal Server Error")
_NOT_FOUND = _message(404, "Not Found")
_TOO_SLOW = _message(503, "Service Unavailable")
# The rest of the body may still arrive: close the connection.
_BODY_TOO_SLOW = _message(408, "Request Timeout", ("connection", "close"))


class HttpGateway:
    """The gateway of one HTTP API."""

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
                await asgi.respond(send, route)
            elif route.function in self._streams:
                await self._streams[route.function].proxy(scope, receive, send)
            else:
                request = await self._request(scope, receive, route, parameters)
                await asgi.respond(send, await self._call(route.function, request))
        except TimeoutError:
            await asgi.respond(send, _BODY_TOO_SLOW)
        except Rejected as error:
            await asgi.respond(send, self._refusal(scope, error))
        except Gone:
            pass  # the client has disconnected; an incomplete body is discarded

    def _match(self, scope: Message) -> tuple[HttpRoute | HttpResponse, dict[str, str]]:
        path, method = raw_path(scope), scope["method"]
        match = self._routes.match(method, path)
        if isinstance(match, list):
            answer = self._unrouted(scope, path, match)
            if answer is not None:
                return answer, {}
            if self._routes.default is None:
                return _NOT_FOUND, {}
            match = self._routes.default
        return match.route, match.parameters

    def _unrouted(self, scope: Message, path: str, methods: Sequence[str]) -> HttpResponse | None:
        method = scope["method"]
        if method == "OPTIONS" and methods:
            return self._preflight(scope, methods)
        if method not in ("GET", "HEAD"):
            return None
        page = live_page.answer(self._console, path, self._prefix)
        if page is None:
            return None
        body = b"" if method == "HEAD" else page.body.encode()
        return HttpResponse(page.status, list(page.headers.items()), body)

    async def _call(self, function: str, request: HttpRequest) -> HttpResponse:
        event = http_events.encode(request, now_ms=clock.now_ms(), request_id=clock.new_uuid())
        payload = json.dumps(event, separators=(",", ":")).encode()
        # A client that disconnects, or a late answer, does not stop the function.
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

    async def _request(
        self, scope: Message, receive: Receive, route: HttpRoute, parameters: Mapping[str, str]
    ) -> HttpRequest:
        headers = asgi.headers_of(scope)
        check_announced(dict(headers))
        is_complete = arrival_of(scope).is_complete
        return HttpRequest(
            method=scope["method"],
            path=raw_path(scope),
            query=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=await body_of(receive, self._bodies, is_complete=is_complete),
            source_ip=asgi.client_of(scope),
            route=route.key,
            parameters=parameters,
        )

    def _preflight(self, scope: Message, methods: Sequence[str]) -> HttpResponse:
        headers = preflight_headers(_origin(scope), self._origins, methods)
        return HttpResponse(204, list(headers.items()))

    def _refusal(self, scope: Message, error: Rejected) -> HttpResponse:
        return http_events.refusal(error, cors_headers(_origin(scope), self._origins))


def _origin(scope: Message) -> str:
    return dict(asgi.headers_of(scope)).get("origin", "")
