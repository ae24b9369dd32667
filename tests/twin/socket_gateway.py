"""The WebSocket API: connections, their events, and API Gateway's limits.

Like API Gateway, the gateway passes a message of a connection to the function at once, without
waiting for the answer to the previous message.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tests.twin import http_gateway
from tests.twin.store import STAGE
from tidings.aws.config.deployment import SocketRoute
from tidings.aws.effects import now_ms, steady_ms
from tidings.http.asgi import Message, Receive, Send
from tidings.server.sockets import CLOSE_S, GOING_AWAY, LISTENERS, PATH, UNSUPPORTED, refuse

if TYPE_CHECKING:
    from tests.twin.lambda_api import Invoke

CONNECT, DEFAULT, DISCONNECT = "$connect", "$default", "$disconnect"

_EVENT_TYPES = {CONNECT: "CONNECT", DEFAULT: "MESSAGE", DISCONNECT: "DISCONNECT"}
MESSAGE_BYTES_MAX = 128 * 1024  # API Gateway's limit for a message in either direction
# The limit for a client's frame. API Gateway closes a connection that exceeds this limit, or the
# limit for messages, with the code 1009.
FRAME_BYTES_MAX = 32 * 1024
IDLE_S = 600.0  # a connection is closed after this time without traffic
LIFE_S = 7200.0  # every connection is closed at this age
IN_FLIGHT_MAX = 16  # messages of a connection handled at the same time; others wait in the socket
# The maximum of bytes that wait for a client to read them, in addition to the buffers of the
# operating system. API Gateway does not document its limit; this limit allows a few of the largest
# messages.
OUTGOING_BYTES_MAX = 1024 * 1024
NORMAL = 1000
_FAILED = object()


@dataclass(frozen=True, slots=True)
class Caller:
    """The data of the handshake of one connection."""

    connection_id: str
    connected_ms: int
    source_ip: str
    headers: Sequence[tuple[str, str]]
    query: str

    @property
    def user_agent(self) -> str:
        return next((v for k, v in self.headers if k.lower() == "user-agent"), "")

    @property
    def host(self) -> str:
        return next((v for k, v in self.headers if k.lower() == "host"), "localhost")


def connect_event(caller: Caller, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, CONNECT, now_ms)
    event |= _lists("headers", "multiValueHeaders", _spell(caller.headers))
    if caller.query:
        pairs = parse_qsl(caller.query, keep_blank_values=True)
        event |= _lists("queryStringParameters", "multiValueQueryStringParameters", pairs)
    return event


def message_event(caller: Caller, body: str, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, DEFAULT, now_ms, messageId=new_connection_id())
    event["body"] = body
    return event


def disconnect_event(caller: Caller, code: int, reason: str, *, now_ms: int) -> dict[str, object]:
    event = _event(caller, DISCONNECT, now_ms, disconnectStatusCode=code, disconnectReason=reason)
    event |= _lists("headers", "multiValueHeaders", [("Host", caller.host)])
    return event


def new_connection_id() -> str:
    """Return a connection id in API Gateway's format: 15 characters and an equals sign."""
    return base64.urlsafe_b64encode(secrets.token_bytes(11)).decode()


def _event(caller: Caller, route: str, now_ms: int, **more: object) -> dict[str, object]:
    context: dict[str, object] = {
        "routeKey": route,
        "eventType": _EVENT_TYPES[route],
        "extendedRequestId": new_connection_id(),
        "requestTime": http_gateway.access_time(now_ms),
        "messageDirection": "IN",
        "stage": STAGE,
        "connectedAt": caller.connected_ms,
        "requestTimeEpoch": now_ms,
        "identity": {"userAgent": caller.user_agent, "sourceIp": caller.source_ip},
        "requestId": new_connection_id(),
        "domainName": caller.host,
        "connectionId": caller.connection_id,
        "apiId": "localws",
        **more,
    }
    return {"requestContext": context, "isBase64Encoded": False}


def _lists(single: str, multiple: str, pairs: Sequence[tuple[str, str]]) -> dict[str, object]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {single: {name: listed[-1] for name, listed in values.items()}, multiple: values}


def _spell(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Spell header names like API Gateway, regardless of the client's spelling."""
    return [("-".join(part.capitalize() for part in k.split("-")), v) for k, v in headers]


@dataclass(frozen=True, slots=True)
class Ending:
    """The close code and reason; if *by_server*, the gateway has to send them to the client."""

    code: int
    reason: str
    by_server: bool


class OpenSocket:
    """An accepted connection, and its outgoing messages; `ended` is done when it has to end."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.active_ms = caller.connected_ms
        self._opened_ms = self._used_ms = steady_ms()
        self.outgoing: asyncio.Queue[str | None] = asyncio.Queue()
        self.outgoing_bytes = 0
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)

    def post(self, text: str) -> bool:
        """Queue a message for the client; return False if too many bytes already wait."""
        size = len(text.encode())
        if self.outgoing_bytes + size > OUTGOING_BYTES_MAX:
            return False
        self.mark_active()
        self.outgoing_bytes += size
        self.outgoing.put_nowait(text)
        return True

    def mark_active(self) -> None:
        """Record that a message was sent or received."""
        self.active_ms, self._used_ms = now_ms(), steady_ms()

    def left_ms(self, idle_s: float, life_s: float) -> float:
        """Return how long the connection may stay open if it stays idle."""
        end_ms = min(self._used_ms + idle_s * 1000, self._opened_ms + life_s * 1000)
        return end_ms - steady_ms()

    def end(self, code: int, reason: str, *, by_server: bool = True) -> None:
        """Close the connection; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(Ending(code, reason, by_server))


class SocketGateway:
    """The gateway of one WebSocket API."""

    def __init__(
        self,
        routes: Sequence[SocketRoute],
        invoke: Invoke,
        *,
        idle_s: float = IDLE_S,
        life_s: float = LIFE_S,
    ) -> None:
        self._functions: Mapping[str, str] = {route.key: route.function for route in routes}
        self._without_function = frozenset(route.key for route in routes if not route.function)
        self._invoke = invoke
        self._idle_s = idle_s
        self._life_s = life_s
        self._open: dict[str, OpenSocket] = {}
        self._background: set[asyncio.Task[None]] = set()

    def find(self, connection_id: str) -> OpenSocket | None:
        return self._open.get(connection_id)

    async def serve(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection from its handshake to its end."""
        await receive()
        caller = _caller(scope)
        listens = LISTENERS.fullmatch(scope["path"])
        if listens:
            named = f"changefeed={listens['feed'] or ''}"
            caller = replace(caller, query="&".join(filter(None, (caller.query, named))))
        known = listens or scope["path"] == PATH
        status = await self._connect(caller) if known else 404
        if not 200 <= status < 300:
            await refuse(send, status, "")
            return
        await send({"type": "websocket.accept"})
        connection = self._open[caller.connection_id] = OpenSocket(caller)
        ending = Ending(1006, "", by_server=False)
        try:
            ending = await self._converse(connection, receive, send)
        finally:
            del self._open[caller.connection_id]
            self._spawn(self._disconnect(caller, ending))
        if ending.by_server:
            await _close(send, ending)

    async def stop(self) -> None:
        """Close all connections, and cancel the messages being handled."""
        for connection in list(self._open.values()):
            connection.end(GOING_AWAY, "Going away")
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _connect(self, caller: Caller) -> int:
        event = connect_event(caller, now_ms=caller.connected_ms)
        answer = await self._call(CONNECT, event)
        status = answer.get("statusCode") if isinstance(answer, dict) else None
        return status if isinstance(status, int) else 500

    async def _disconnect(self, caller: Caller, ending: Ending) -> None:
        event = disconnect_event(caller, ending.code, ending.reason, now_ms=now_ms())
        await self._call(DISCONNECT, event)

    async def _converse(self, connection: OpenSocket, receive: Receive, send: Send) -> Ending:
        reading = asyncio.ensure_future(self._read(connection, receive))
        writing = asyncio.ensure_future(_write(connection, send))
        expiring = asyncio.ensure_future(self._end_when_due(connection))
        try:
            ending = await asyncio.shield(connection.ended)
            if ending.by_server:
                connection.outgoing.put_nowait(None)
                await asyncio.wait((writing,), timeout=CLOSE_S)
            return ending
        finally:
            for task in (reading, writing, expiring):
                task.cancel()
            await asyncio.gather(reading, writing, expiring, return_exceptions=True)

    async def _read(self, connection: OpenSocket, receive: Receive) -> None:
        while (event := await receive())["type"] == "websocket.receive":
            connection.mark_active()
            text = event.get("text")
            if text is None:
                connection.end(UNSUPPORTED, "Binary messages are not supported")
                return
            await connection.in_flight.acquire()
            self._spawn(self._receive(connection, text))
        code = event.get("code") or 1005
        connection.end(code, event.get("reason") or "", by_server=False)

    async def _receive(self, connection: OpenSocket, text: str) -> None:
        if self._lacks_function(text):
            connection.in_flight.release()
            return
        event = message_event(connection.caller, text, now_ms=now_ms())
        try:
            if await self._call(DEFAULT, event) is _FAILED:
                connection.post(json.dumps(_apology(event)))
        finally:
            connection.in_flight.release()

    def _lacks_function(self, text: str) -> bool:
        """Return True if the route of the action (`$request.body.action`) has no function."""
        try:
            action = json.loads(text)["action"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        return isinstance(action, str) and action in self._without_function

    async def _end_when_due(self, connection: OpenSocket) -> None:
        while (left_ms := connection.left_ms(self._idle_s, self._life_s)) > 0:
            await asyncio.sleep(left_ms / 1000)
        connection.end(GOING_AWAY, "Going away")

    async def _call(self, route: str, event: Mapping[str, object]) -> object:
        """Return the answer of the function of *route*, or `_FAILED`."""
        payload = json.dumps(event, separators=(",", ":")).encode()
        answer = await self._invoke(self._functions[route], payload)
        if answer.error is not None:
            return _FAILED
        try:
            return json.loads(answer.payload)
        except ValueError:
            return _FAILED

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _caller(scope: Message) -> Caller:
    return Caller(
        connection_id=new_connection_id(),
        connected_ms=now_ms(),
        source_ip=http_gateway.client_of(scope),
        headers=http_gateway.headers_of(scope),
        query=scope["query_string"].decode("latin-1"),
    )


def _apology(event: Mapping[str, object]) -> dict[str, object]:
    """Return the message that API Gateway sends to the client if the function failed."""
    context = event["requestContext"]
    assert isinstance(context, dict)
    return {
        "message": "Internal server error",
        "connectionId": context["connectionId"],
        "requestId": context["requestId"],
    }


async def _write(connection: OpenSocket, send: Send) -> None:
    while (text := await connection.outgoing.get()) is not None:
        try:
            await send({"type": "websocket.send", "text": text})
        except OSError:
            return  # the client is gone; `receive` reports the disconnect
        connection.outgoing_bytes -= len(text.encode())


async def _close(send: Send, ending: Ending) -> None:
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(CLOSE_S):
            await send({"type": "websocket.close", "code": ending.code, "reason": ending.reason})
