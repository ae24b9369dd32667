"""
WebSocket connections: their handshake, what their clients send, what they are sent.

Sends come from threads. They are queued for the event loop, which is woken once for all that was
queued until it looks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import re
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tidings.core.errors import Rejected, TidingsError
from tidings.core.triton.registration import listener_of
from tidings.core.websocket.connections import Connection, Outcome
from tidings.web.asgi import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.effects import Clock
    from tidings.core.triton.registration import Listener
    from tidings.core.websocket.stores import ConnectionStore
    from tidings.web.asgi import Message, Receive, Send

log = logging.getLogger(__name__)
PATH = "/ws"
LISTENERS = re.compile(r"(?:/feeds/(?P<feed>[^/]+))?/changefeeds")
OUTGOING_BYTES_MAX = 1024 * 1024  # not yet read by a client: eight of the largest messages
ROOM_S = 10.0  # a catch-up waits so long for a client that reads slowly
CLOSE_S = 1.0  # for a client that does not read, the close frame is not waited for any longer
UNSUPPORTED, GOING_AWAY = 1003, 1001
_FAILED = '{"message":"Internal server error"}'


class _Client:
    """A connection that was accepted: what it has still to be sent."""

    def __init__(self, room: Condition) -> None:
        self.room = room
        self.queued: deque[str] = deque()
        self.bytes = 0
        self.more = asyncio.Event()
        self.end: tuple[int, str] | None = None


class Sockets:
    """Implements `Sockets` for sends that must not wait; `patient` for those that may."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clients: dict[str, _Client] = {}
        self._room = Condition()
        self._waking: list[_Client] = []

    def send(self, connection_id: str, frame: str) -> Outcome:
        return self._post(connection_id, frame, 0.0)

    def close(self, connection_id: str) -> None:
        with self._room:
            client = self._clients.get(connection_id)
            if client is not None:
                client.end = client.end or (GOING_AWAY, "Going away")
                self._wake(client)

    @property
    def patient(self) -> Patient:
        return Patient(self)

    def add(self, connection_id: str) -> _Client:
        client = _Client(self._room)
        with self._room:
            self._clients[connection_id] = client
        return client

    def remove(self, connection_id: str) -> None:
        with self._room:
            self._clients.pop(connection_id, None)
            self._room.notify_all()

    def close_all(self) -> None:
        for connection_id in list(self._clients):
            self.close(connection_id)

    @property
    def count(self) -> int:
        return len(self._clients)

    def _post(self, connection_id: str, frame: str, room_s: float) -> Outcome:
        size = len(frame)
        with self._room:
            self._room.wait_for(lambda: self._has_room(connection_id, size), room_s)
            client = self._clients.get(connection_id)
            if client is None or client.end is not None:
                return Outcome.GONE
            if client.bytes and client.bytes + size > OUTGOING_BYTES_MAX:
                return Outcome.BUSY
            client.queued.append(frame)
            client.bytes += size
            self._wake(client)
            return Outcome.SENT

    def _has_room(self, connection_id: str, size: int) -> bool:
        client = self._clients.get(connection_id)
        return client is None or not client.bytes or client.bytes + size <= OUTGOING_BYTES_MAX

    def _wake(self, client: _Client) -> None:
        self._waking.append(client)
        if len(self._waking) == 1:
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        with self._room:
            waking, self._waking = self._waking, []
        for client in waking:
            client.more.set()


class Patient:
    """Implements `Sockets`: waits `ROOM_S` for room before it calls a client busy."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def send(self, connection_id: str, frame: str) -> Outcome:
        return self._sockets._post(connection_id, frame, ROOM_S)

    def close(self, connection_id: str) -> None:
        self._sockets.close(connection_id)


class SocketApp:
    """The ASGI app. *receive* acts on one message, in a thread."""

    def __init__(
        self,
        sockets: Sockets,
        connections: ConnectionStore,
        receive: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        self._sockets, self._connections = sockets, connections
        self._receive, self._clock = receive, clock

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        try:
            listener = _listener(scope)
        except Rejected as error:
            await refuse(send, error.status, json.dumps({"error": error.body()}))
            return
        if listener is None and scope["path"] != PATH:
            await refuse(send, 404, "")
            return
        connection_id = base64.urlsafe_b64encode(os.urandom(12)).decode()
        self._connections.open(Connection(connection_id, self._clock(), listener=listener))
        client = self._sockets.add(connection_id)
        try:
            await send({"type": "websocket.accept"})
            await self._converse(connection_id, client, receive, send)
        finally:
            self._sockets.remove(connection_id)
            await asyncio.to_thread(self._connections.remove, connection_id)

    async def _converse(
        self, connection_id: str, client: _Client, receive: Receive, send: Send
    ) -> None:
        reading = asyncio.ensure_future(self._read(connection_id, client, receive))
        writing = asyncio.ensure_future(_write(client, send))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, connection_id: str, client: _Client, receive: Receive) -> None:
        """A client's messages take effect in the order it sent them."""
        while (event := await receive())["type"] == "websocket.receive":
            text = event.get("text")
            if text is None:
                client.end = UNSUPPORTED, "Binary messages are not supported"
                client.more.set()
                continue
            try:
                await asyncio.to_thread(self._receive, connection_id, text)
            except TidingsError as error:
                log.warning("a message failed: %s", error)
                self._sockets.send(connection_id, _FAILED)
            except Exception:
                log.exception("a message failed")
                self._sockets.send(connection_id, _FAILED)


async def _write(client: _Client, send: Send) -> None:
    """Until the connection is to end; what is queued by then is sent."""
    while True:
        await client.more.wait()
        client.more.clear()
        while client.queued:
            with client.room:
                frames = list(client.queued)
                client.queued.clear()
            for frame in frames:
                await send({"type": "websocket.send", "text": frame})
            with client.room:
                client.bytes -= sum(map(len, frames))
                client.room.notify_all()
        if client.end is not None:
            code, reason = client.end
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(CLOSE_S):
                    await send({"type": "websocket.close", "code": code, "reason": reason})
            return


async def refuse(send: Send, status: int, body: str) -> None:
    headers = [(b"content-type", b"application/json")] if body else []
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body.encode()})


def _listener(scope: Message) -> Listener | None:
    """
    As `listener_of` says; whoever connects at the path of listeners is one.

    Raises:
        InvalidRegistration: the handshake says a version that is none.
    """
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    named = LISTENERS.fullmatch(scope["path"])
    if named:
        query["changefeed"] = named["feed"] or ""
    return listener_of(query, headers_of(scope))
