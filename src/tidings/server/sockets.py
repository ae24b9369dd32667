"""WebSocket connections: handshake, received messages, sent messages.

Threads send messages: they queue each message for the event loop, and wake the loop once for all
messages that are queued until it runs. Threads share a lock that the loop never takes. The loop
needs no lock, because threads and loop have separate byte counters, and deques are safe without a
lock.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import re
import time
from collections import Counter, deque
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from websockets.frames import Frame, Opcode

from tidings.core.errors import Rejected, TidingsError
from tidings.core.maintenance.clients import user_agent_of
from tidings.core.triton.registration import listener_of
from tidings.core.websocket.connections import Connection, Outcome
from tidings.http.asgi import CUT_AFTER, headers_of
from tidings.http.streams.tail_poller import SLICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from tidings.core.effects import Clock
    from tidings.core.websocket.connections import ConnectionStore
    from tidings.http.asgi import CutAfter, Message, Receive, Send

log = logging.getLogger(__name__)
PATH = "/ws"
LISTENERS = re.compile(r"(?:/feeds/(?P<feed>[^/]+))?/changefeeds")
OUTGOING_BYTES_MAX = 1024 * 1024  # maximum of bytes queued for a client; 8 of the largest messages
ROOM_BYTES = 256 * 1024  # if more bytes are queued for a client, its catch-up waits
MESSAGES_AT_ONCE = 2  # messages handled at once; more threads would delay the event loop
CLOSE_S = 1.0  # maximum time for a client to read the queued messages and the close frame
UNSUPPORTED, GOING_AWAY = 1003, 1001
_FAILED = '{"message":"Internal server error"}'
# Keys in the ASGI scope. Their values are the methods of `SocketProtocol` with these names.
WRITE_FRAME, SET_WAITING = "tidings.write_frame", "tidings.set_waiting"


class _Messages(NamedTuple):
    """Messages, also encoded as frames.

    *committed_s* is the monotonic time at which their first operation was committed; 0 for messages
    that `Sockets` does not measure.
    """

    texts: Sequence[str]
    frames: bytes
    committed_s: float = 0.0

    @staticmethod
    def of(texts: Sequence[str], committed_s: float = 0.0) -> _Messages:
        """Encode *texts*. The frames are the same for every client: a server does not mask them."""
        encoded = (Frame(Opcode.TEXT, text.encode()).serialize(mask=False) for text in texts)
        return _Messages(texts, b"".join(encoded), committed_s)


class _Client:
    """The send queue of an accepted connection.

    Threads increment *queued_bytes*, and the event loop increments *sent_bytes*. *waits* is True
    while a catch-up waits for room. *write* writes a frame to the connection if the connection
    accepts more data. While *is_sending* is True, only the connection's task sends messages.
    """

    def __init__(self, connection_id: str, write: Callable[[bytes], bool] | None) -> None:
        self.id, self.write, self.is_sending = connection_id, write, False
        self.queued: deque[_Messages] = deque()
        self.queued_bytes = self.sent_bytes = 0
        self.more = asyncio.Event()
        self.end: tuple[int, str] | None = None
        self.waits = False
        self.user_agent = ""
        self.set_waiting: Callable[[bool], None] = lambda _: None  # see `SocketProtocol`
        self.cut_after: CutAfter = lambda _: None

    @property
    def bytes(self) -> int:
        """Return the number of bytes queued but not yet sent."""
        return self.queued_bytes - self.sent_bytes


class Sockets:
    """Implements `Sockets` for push, which must not block, and `Room` for catch-ups.

    `for_replays` returns the implementation of `Sockets` for catch-ups. *replay* is called in the
    event loop when a client in catch-up has room again.

    When messages of a broadcast are written, *observe* is called in the event loop with the time
    since the first commit that the push of their feed had to handle, and the number of clients.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replay: Callable[[str], None] = lambda _: None,
        observe: Callable[[float, int], object] = lambda *_: None,
    ) -> None:
        self._loop, self._replay, self._observe = loop, replay, observe
        self._committed: dict[str, float] = {}  # the time of the first commit since the last push
        self._pushed_s = 0.0  # this time of the feed in push, which one thread runs; 0: none
        self._written: Counter[float] = Counter()  # clients by the `committed_s` of the messages
        self._clients: dict[str, _Client] = {}
        self._sending = Lock()  # taken by threads, never by the loop
        self._waking: deque[_Client] = deque()
        self._is_waking = False

    def send(self, connection_id: str, frame: str) -> Outcome:
        return self._post(connection_id, frame, OUTGOING_BYTES_MAX)

    def user_agent(self, connection_id: str) -> str:
        """Return the name of the client's program; "" if it is unknown."""
        client = self._clients.get(connection_id)
        return client.user_agent if client else ""

    def close(self, connection_id: str) -> None:
        client = self._clients.get(connection_id)
        if client is not None:
            client.end = client.end or (GOING_AWAY, "Going away")
            self._wake(client)

    @property
    def for_replays(self) -> ReplaySockets:
        return ReplaySockets(self)

    def add(self, connection_id: str, write: Callable[[bytes], bool] | None = None) -> _Client:
        client = self._clients[connection_id] = _Client(connection_id, write)
        return client

    def remove(self, connection_id: str) -> None:
        self._clients.pop(connection_id, None)

    def close_all(self) -> None:
        for connection_id in list(self._clients):
            self.close(connection_id)

    @property
    def count(self) -> int:
        return len(self._clients)

    def mark_committed(self, feed: str) -> None:
        """Note the time of a commit of *feed*; callable from any thread."""
        self._committed.setdefault(feed, time.monotonic())

    @contextlib.contextmanager
    def pushing(self, feed: str) -> Iterator[None]:
        """Measure the broadcasts of the context, which are those of *feed*; see `observe`."""
        self._pushed_s = self._committed.pop(feed, 0.0)
        try:
            yield
        finally:
            self._pushed_s = 0.0

    def has_sent(self, client: _Client, batch: _Messages) -> None:
        """Count *batch* as sent, and continue the catch-up that waits for room, if any."""
        client.sent_bytes += len(batch.frames)
        if batch.committed_s:
            self._written[batch.committed_s] += 1
        if client.waits and client.bytes <= ROOM_BYTES:
            self._continue(client)

    def _continue(self, client: _Client) -> None:
        """Continue the catch-up. If it cannot be started, try again after the next message."""
        client.waits = False  # reset first, because the catch-up may wait again at once
        try:
            self._replay(client.id)
        except Exception:
            client.waits = True
            raise

    def has_room(self, connection_id: str) -> bool:
        client = self._clients.get(connection_id)
        return client is None or client.bytes <= ROOM_BYTES

    def replay_with_room(self, connection_id: str) -> None:
        """Continue the catch-up as soon as its client has room, which may be now."""
        client = self._clients.get(connection_id)
        if client is None:
            return
        client.waits = True
        if client.bytes <= ROOM_BYTES:  # perhaps `has_sent` was last called before *waits* was set
            self._continue(client)

    def broadcast(self, messages: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Implement `Broadcast`. Encode each list of messages once, however many clients get it."""
        encoded: dict[int, _Messages] = {}
        left: dict[str, Sequence[str]] = {}
        waking: list[_Client] = []
        for connection_id, texts in messages.items():
            batch = encoded.get(id(texts))
            if batch is None:
                batch = encoded[id(texts)] = _Messages.of(texts, self._pushed_s)
            client = self._clients.get(connection_id)
            is_long = len(batch.frames) > OUTGOING_BYTES_MAX
            if client is None or is_long or not self._queue(client, batch, OUTGOING_BYTES_MAX):
                left[connection_id] = texts
            else:
                waking.append(client)
        if waking:
            self._wake(*waking)
        return left

    def _post(self, connection_id: str, text: str, bytes_max: int | None) -> Outcome:
        client = self._clients.get(connection_id)
        if client is None or client.end is not None:
            return Outcome.GONE
        if not self._queue(client, _Messages.of((text,)), bytes_max):
            return Outcome.BUSY
        self._wake(client)
        return Outcome.SENT

    def _queue(self, client: _Client, batch: _Messages, bytes_max: int | None) -> bool:
        """Queue *batch*; return False if the client is closed or has too much queued already."""
        size = len(batch.frames)
        if client.end is not None:
            return False
        with self._sending:
            if bytes_max is not None and client.bytes and client.bytes + size > bytes_max:
                return False
            client.queued_bytes += size
            client.queued.append(batch)
        return True

    def _wake(self, *clients: _Client) -> None:
        self._waking.extend(clients)
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Write what is queued, in slices, so that the loop serves others between two slices."""
        self._is_waking = False  # reset first, because messages queued from now on need a wake-up
        for _ in range(min(SLICE, len(self._waking))):
            client = self._waking.popleft()
            try:
                self._write(client)
            except Exception:  # the client's own task sends the rest, or ends with the error
                log.exception("a message to a WebSocket was not written at once")
                client.write = None
            if client.queued or client.end is not None:
                client.more.set()
            if client.end is not None:
                client.cut_after(CLOSE_S)
        self.observe_written()
        if self._waking:
            self._is_waking = True
            self._loop.call_soon(self._wake_all)

    def observe_written(self) -> None:
        """Pass the times of the messages written since the last call to *observe*."""
        if self._written:
            now_s = time.monotonic()
            for committed_s, clients in self._written.items():
                self._observe(now_s - committed_s, clients)
            self._written.clear()

    def _write(self, client: _Client) -> None:
        """Write the messages that the connection accepts now, without waking the client's task."""
        if client.write is None or client.is_sending:
            return
        while client.queued:
            batch = client.queued[0]
            if not client.write(batch.frames):
                return
            client.queued.popleft()
            self.has_sent(client, batch)


class ReplaySockets:
    """Implements `Sockets` for catch-ups.

    All messages of one step of a catch-up are queued at once, whatever their size, and the next
    step waits for room. So a slow client does not occupy a thread.
    """

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def send(self, connection_id: str, frame: str) -> Outcome:
        return self._sockets._post(connection_id, frame, None)

    def close(self, connection_id: str) -> None:
        self._sockets.close(connection_id)


class SocketApp:
    """The ASGI app of WebSockets.

    *receive* handles one message in a thread. *prepare* first waits in the event loop for the data
    that *receive* needs to check the message.
    """

    def __init__(
        self,
        *,
        sockets: Sockets,
        connections: ConnectionStore,
        receive: Callable[[str, str], None],
        clock: Clock,
        prepare: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._prepare = prepare
        self._sockets, self._connections = sockets, connections
        self._receive, self._clock = receive, clock
        self._turns = asyncio.Semaphore(MESSAGES_AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        try:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            named = LISTENERS.fullmatch(scope["path"])
            if named:
                query["changefeed"] = named["feed"] or ""
            listener = listener_of(query, headers_of(scope))
        except Rejected as error:
            await refuse(send, error.status, json.dumps({"error": error.body()}))
            return
        if listener is None and scope["path"] != PATH:
            await refuse(send, 404, "")
            return
        connection_id = base64.urlsafe_b64encode(os.urandom(12)).decode()
        self._connections.open(Connection(connection_id, self._clock(), listener=listener))
        client = self._sockets.add(connection_id, scope.get(WRITE_FRAME))
        client.user_agent = user_agent_of(headers_of(scope))
        client.set_waiting = scope.get(SET_WAITING, client.set_waiting)
        client.cut_after = scope.get(CUT_AFTER, client.cut_after)
        try:
            await send({"type": "websocket.accept"})
            client.set_waiting(True)
            await self._converse(connection_id, client, receive, send)
        finally:
            self._sockets.remove(connection_id)
            await asyncio.to_thread(self._connections.remove, connection_id)

    async def _converse(
        self, connection_id: str, client: _Client, receive: Receive, send: Send
    ) -> None:
        reading = asyncio.ensure_future(self._read(connection_id, client, receive))
        writing = asyncio.ensure_future(self._write(client, send))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, connection_id: str, client: _Client, receive: Receive) -> None:
        """Handle the client's messages in the order in which they arrive."""
        while (event := await receive())["type"] == "websocket.receive":
            text = event.get("text")
            if text is None:
                client.end = UNSUPPORTED, "Binary messages are not supported"
                client.more.set()
                continue
            try:
                if self._prepare is not None:
                    await self._prepare(text)
                async with self._turns:
                    is_subscribed = await asyncio.to_thread(self._handle, connection_id, text)
                if is_subscribed:
                    client.set_waiting(False)
            except TidingsError as error:
                log.warning("a message failed: %s", error)
                await asyncio.to_thread(self._sockets.send, connection_id, _FAILED)
            except Exception:
                log.exception("a message failed")
                await asyncio.to_thread(self._sockets.send, connection_id, _FAILED)

    def _handle(self, connection_id: str, text: str) -> bool:
        """Handle a message; return True if the connection has subscribed or registered."""
        self._receive(connection_id, text)
        connection = self._connections.get(connection_id)
        return connection is not None and connection.feed != ""

    async def _write(self, client: _Client, send: Send) -> None:
        """Send the messages that could not be written immediately.

        Return when the server has closed the connection.
        """
        while True:
            await client.more.wait()
            client.more.clear()
            client.is_sending = True
            while client.queued:
                batch = client.queued.popleft()
                for text in batch.texts:
                    await send({"type": "websocket.send", "text": text})
                self._sockets.has_sent(client, batch)
            client.is_sending = False
            self._sockets.observe_written()
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
