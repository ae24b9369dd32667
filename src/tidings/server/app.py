"""The ASGI app of a server.

It checks the host and the origin of each request, routes the request, and selects the thread that
handles it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tidings.assembly.waiting import event_streams, waiting_app
from tidings.core.auth.guard import Role
from tidings.core.auth.origins import READING
from tidings.core.errors import Rejected, TooLarge, Unavailable
from tidings.http.answers import preflight_headers, refusal, respond, with_headers
from tidings.http.asgi import (
    CUT_AFTER,
    Arrival,
    BodyBudget,
    Gone,
    answer_head,
    arrival_of,
    below,
    body_of,
    check_announced,
    headers_of,
    join_headers,
    raw_path,
    send_answer,
    send_response,
)
from tidings.http.durable_streams import ACCEPTED
from tidings.http.endpoints import status
from tidings.http.request import CHANGEAGENT, Answer, BodyPending, Overloaded, Request, WrongMethod
from tidings.http.router import Match, RouteTable, pattern
from tidings.http.routes import HTTP_ROUTES, SERVER_ROUTES, STREAM
from tidings.server import metrics, sockets
from tidings.server.host import Host, now_ms
from tidings.server.posts import LOOP_BYTES_MAX, plan_for

if TYPE_CHECKING:
    from pathlib import Path

    from tidings.http.asgi import CutAfter, Message, Receive, Send
    from tidings.server.http_server import HostCheck

log = logging.getLogger(__name__)
METRICS, CONSOLE = "/metrics", "/console"
_ROUTES = HTTP_ROUTES + SERVER_ROUTES
_METHODS = sorted({each.method for each in _ROUTES} - {"ANY"} | {"OPTIONS"})
_STREAM = pattern(STREAM)


class UpgradeRequired(Rejected, code="upgrade_required", status=426):
    """The path is that of a WebSocket; a proxy may have removed the header `Upgrade`."""


class ServerApp:
    """The ASGI app of *host*.

    *host_check* checks the host and the origin of requests. *console* is the folder of the live
    page; None if the page is not served.
    """

    def __init__(self, host: Host, host_check: HostCheck, console: Path | None) -> None:
        self._host, self._host_check, self._console = host, host_check, console
        self._origins = host.settings.cors_origins
        self._prefix = host.settings.url_prefix
        self._routes = RouteTable(_ROUTES, answers_head=True)
        listen = host.notifications.listen
        # A server does not limit the duration of event streams.
        self._events = event_streams(lambda: host, "server", listen=listen)
        host.meters.event_streams = lambda: self._events.count
        self._waiting = waiting_app(
            lambda: host, self._events, lazy=False, listen=listen, has_console=console is not None
        )
        self._streams = host.stream_reads()
        self._bodies = BodyBudget()
        self._rendering: dict[str, asyncio.Future[str]] = {}  # metrics, by their format
        keys = host.issuer_keys
        self._sockets = sockets.SocketApp(
            sockets=host.sockets,
            connections=host.stores.connections,
            receive=host.receive,
            clock=now_ms,
            prepare=keys.prepare_message if keys else None,
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        try:
            headers = self._host_check.check(scope)
        except Rejected as error:
            await self._refuse(scope, receive, send, error)
            return
        scope = below(scope, self._prefix)
        if scope["type"] == "websocket":
            await self._sockets(scope, receive, send)
        else:
            if self._host.issuer_keys is not None:
                await self._host.issuer_keys.prepare(headers.get("authorization"))
            await self._serve(scope, headers, receive, send)

    def end_streams(self) -> None:
        """End all event streams, because the server stops. Their clients resume later."""
        self._events.end_all()

    async def _refuse(self, scope: Message, receive: Receive, send: Send, error: Rejected) -> None:
        if scope["type"] == "websocket":
            await receive()
            await sockets.refuse(send, error.status, json.dumps({"error": error.body()}))
        else:
            await send_answer(send, refusal(error, path=raw_path(scope)), headers_of(scope), ())

    async def _serve(
        self, scope: Message, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        method, path = scope["method"], raw_path(scope)
        match = self._routes.match(method, path)
        if isinstance(match, list):
            answer = await self._fallback(scope, headers, path, match)
            if answer is not None:
                await send_answer(send, answer, headers, self._origins)
                return
            assert self._routes.default is not None
            match = self._routes.default
        else:
            arrival_of(scope).route = match.route.path
        try:
            if match.route.function not in ("stream", "list"):
                await self._handle(scope, headers, match, receive, send)
            elif method == "HEAD":
                await answer_head(self._waiting, scope, send)
            else:
                await self._waiting(scope, receive, send)
        except TimeoutError:
            problem = _problem(408, "Request Timeout", path, connection="close")
            await send_response(send, problem.status, problem.headers, problem.body.encode())
        except (TooLarge, Overloaded) as error:
            await send_answer(send, refusal(error, path=path), headers, self._origins)
        except Gone:
            pass  # the client has disconnected, so its incomplete body is discarded

    async def _handle(
        self, scope: Message, headers: dict[str, str], match: Match, receive: Receive, send: Send
    ) -> None:
        """Answer a request. If its body has not arrived yet, authorize the request first."""
        if match.route.path == STREAM and scope["method"] in READING:
            request = _request(scope, headers, match)
            cut_after: CutAfter = scope.get(CUT_AFTER, lambda _: None)
            await self._streams(request, receive, send, cut_after)
            return
        arrival = arrival_of(scope)
        if arrival.body is None:
            await asyncio.sleep(0)  # the body often arrives in a packet right after the head
        if arrival.body is not None:
            request = _request(scope, headers, match, arrival.body)
            answer = await self._answer(match.route.function, request, arrival)
        else:
            check_announced(headers)
            request = _request(scope, headers, match)
            answer = await self._answer_late(match.route.function, request, receive, arrival)
        if arrival.route and match.route.function == "ingest" and self._host.issuer_keys is None:
            arrival.plan = plan_for(arrival.route, request, answer, count=len(scope["headers"]))
        if match.route.path == STREAM:
            feed = self._host.directory.find(request.feed)
            if feed is not None:
                self._streams.waiting.notify(feed, request.parameters["name"])
        await send_response(send, answer.status, answer.headers, answer.body.encode())

    async def _answer_late(
        self, function: str, request: Request, receive: Receive, arrival: Arrival
    ) -> Answer:
        try:
            return await self._answer(function, request, arrival)
        except BodyPending:
            body = await body_of(receive, self._bodies)
            request = request._replace(body=body, is_charged=True)
            return await self._answer(function, request, arrival)

    async def _fallback(
        self, scope: Message, headers: dict[str, str], path: str, methods: list[str]
    ) -> Answer | None:
        """Answer a request that no route matches; return None if the default route is to refuse it.

        *methods* are the methods that the path allows.
        """
        method = scope["method"]
        if path == "*":
            return Answer(204, {"allow": ", ".join(_METHODS)})
        if method == "OPTIONS" and methods:
            origin = headers.get("origin", "")
            more = ACCEPTED if _STREAM.fullmatch(path) else ()
            return Answer(204, preflight_headers(origin, self._origins, methods, more))
        if _STREAM.fullmatch(path):
            return refusal(WrongMethod(method, ", ".join([*methods, "OPTIONS"])))
        if method not in ("GET", "HEAD"):
            return None
        if path == sockets.PATH:
            headers = {"upgrade": "websocket", "connection": "upgrade"}
            answer = refusal(UpgradeRequired("the header Upgrade: websocket is missing here"))
            return answer._replace(headers={**answer.headers, **headers})
        if path == METRICS:
            arrival_of(scope).route = METRICS
            return await self._metrics(headers.get("accept", ""))
        page = status.live_page(self._console, path, self._prefix) if self._console else None
        if page is not None:
            arrival_of(scope).route = CONSOLE
        return page

    async def _metrics(self, accept: str) -> Answer:
        """Render the metrics in a thread, because rendering reads the database.

        Requests that arrive before its end get the same text: many scrapers cost no more than one.
        """
        form = metrics.form_for(accept)
        rendering = self._rendering.get(form)
        if rendering is None:
            render = partial(metrics.render_metrics, self._host, form)
            loop = asyncio.get_running_loop()
            rendering = self._rendering[form] = loop.run_in_executor(self._host.pool, render)
            rendering.add_done_callback(lambda _: self._rendering.pop(form))
        try:
            text = await asyncio.shield(rendering)
        except Unavailable as error:
            return refusal(error)
        return Answer(200, {"content-type": form, "vary": "Accept"}, text)

    async def _answer(self, function: str, request: Request, arrival: Arrival) -> Answer:
        endpoint = self._host.endpoint(function)
        is_heavy = not request.is_within(LOOP_BYTES_MAX)

        def run() -> Answer:
            if arrival.is_gone and is_heavy:  # these requests wait for each other
                raise Gone
            answer = respond(endpoint, request, self._origins)
            allowed = answer.headers.get("allow", "")
            if answer.status != 405 or "GET" not in allowed or "HEAD" in allowed:
                return answer
            return answer._replace(
                headers={**answer.headers, "allow": allowed.replace("GET", "GET, HEAD")}
            )

        try:
            if not is_heavy and self._is_grouped(function, request):
                return await self._host.writer.write(run)
            pool = self._host.pool_of(function, is_heavy=is_heavy)
            return await asyncio.get_running_loop().run_in_executor(pool, run)
        except (BodyPending, Gone):
            raise
        except Unavailable as error:  # raised by the commit, after the endpoint has returned
            fields = {**_fields(request), "status": 503, "error": error}
            log.warning("%(method)s %(route)s: %(error)s", fields)
            answer = refusal(error, path=request.path)
            return with_headers(answer, request.headers, self._origins)
        except Exception:
            log.exception("%(method)s %(route)s failed", {**_fields(request), "status": 500})
            return _problem(500, "Internal Server Error", request.path)

    def _is_grouped(self, function: str, request: Request) -> bool:
        """Return True if *request* can run in the event loop, and share a commit with others."""
        if function not in Host.GROUPED or request.body is None:
            return False
        guard, feed = self._host.guard, self._host.directory.find(request.feed)
        return feed is None or not guard.may_block(feed, Role.INGEST, request.credential)


def _request(
    scope: Message, headers: dict[str, str], match: Match, body: bytes | None = None
) -> Request:
    query = scope["query_string"]
    return Request(
        # A route for GET handles HEAD like GET.
        method="GET" if match.route.method == "GET" else scope["method"],
        path=raw_path(scope),
        route=match.route.key,
        headers=headers,
        parameters=match.parameters,
        query=join_headers(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
        if query
        else {},
        body=body,
        query_string=query.decode("latin-1"),
    )


def _fields(request: Request) -> dict[str, object]:
    """Return the fields of a log line about *request*. The route is a template, not the path."""
    feed = {"feed": request.parameters["feed"]} if "feed" in request.parameters else {}
    return {"method": request.method, "route": request.route.rpartition(" ")[2], **feed}


def _problem(status: int, text: str, path: str, **headers: str) -> Answer:
    """Return an error that no endpoint raised, in the format that *path* uses (PROTOCOL 12.8)."""
    name = "error" if CHANGEAGENT.fullmatch(path) else "message"
    return Answer(status, {"content-type": "application/json", **headers}, json.dumps({name: text}))
