"""One WebSocket connection: subscribe, receive, and send keep-alives and pings.

`Heartbeat` and `Reader` contain the rules without I/O; `listen` and `listen_async` do the I/O.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket as sockets
import time
import zlib
from binascii import a2b_base64
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect

from tidings.client.address import Subscription
from tidings.client.errors import Lost, Refused, WrongUrl
from tidings.client.events import LIVE, RESET, Event, Moved, is_copied
from tidings.client.proxies import proxy_of, unreachable
from tidings.client.retries import error_of, error_of_code, retry_after_s
from tidings.core.model import cursors
from tidings.core.model.cursors import NOW, parse_cursor
from tidings.core.model.operations import parse_number

CONNECT_S = 10.0
CLOSE_S = 1.0  # time for the closing handshake
MESSAGE_BYTES_MAX = 1024 * 1024  # the server sends at most 128 KB (API Gateway)
UNPACKED_BYTES_MAX = 128 * 1024  # maximum unpacked size of a message (PROTOCOL 8.9)
_EVENT_ID = re.compile("[0-9a-f]{24}", re.ASCII | re.IGNORECASE)
PING = '{"action":"ping"}'
KEEP_ALIVE = '{"action":"keepalive"}'
_UNKNOWN = ("action", "keepalive")  # field and value in the error of a server without keep-alives
OPTIONS: dict[str, Any] = {
    "open_timeout": CONNECT_S,
    "close_timeout": CLOSE_S,
    "max_size": MESSAGE_BYTES_MAX,
    "ping_interval": None,  # off, because Tidings has its own messages to keep a connection open
}
# Options of TCP keep-alive, which detects a dead link within two minutes, and keeps the entry of an
# idle connection in the tables of NAT devices.
PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_FOLLOWING = ("catching-up", "joining", "live")


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals of PROTOCOL 8.7.

    The answer to a subscription may take longer than a pong, because the function that answers may
    start cold.
    """

    keep_alive_s: float = 540.0
    silent_s: float = 3600.0
    pong_within_s: float = 10.0
    subscribed_within_s: float = 30.0


class Heartbeat:
    """The times to send a keep-alive or a ping, and the time when an answer is overdue.

    Times are monotonic seconds. A server does not answer a keep-alive, and some proxies
    (CloudFront) close a connection on which the server sends nothing. If the *handshake* names a
    proxy, pings are sent instead of keep-alives, because a server answers a ping. After a long
    silence, a ping checks if the server still serves the connection. A server may have lost track
    of the connection without closing it, and then never sends anything again.
    """

    def __init__(self, timing: Timing, now_s: float, handshake: Response | None = None) -> None:
        self._timing = timing
        self._answer_due_s: float | None = now_s + timing.subscribed_within_s
        self._received_s = self._active_s = now_s
        self._keep_alive = KEEP_ALIVE
        if handshake is not None and "Via" in handshake.headers:
            self.ping_instead()
        self._expected: tuple[str, ...] = _FOLLOWING

    @property
    def _ping_due_s(self) -> float:
        return self._received_s + self._timing.silent_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until something is due; more than 0, so that it is a valid timeout."""
        due_s = self._answer_due_s
        if due_s is None:
            due_s = min(self._ping_due_s, self._active_s + self._timing.keep_alive_s)
        return max(0.001, due_s - now_s)

    def on_message(self, now_s: float) -> None:
        """Record that the server sent a message."""
        self._received_s = self._active_s = now_s

    def due(self, now_s: float) -> str | None:
        """Return the message to send now, if any.

        Raises:
            Lost: an answer is overdue.
        """
        if self._answer_due_s is not None:
            if now_s >= self._answer_due_s:
                raise Lost("the server does not answer")
            return None
        says = self._keep_alive
        if now_s >= self._ping_due_s:
            says = PING
        elif now_s < self._active_s + self._timing.keep_alive_s:
            return None
        if says == PING:
            self._answer_due_s = now_s + self._timing.pong_within_s
        self._active_s = now_s
        return says

    def on_answer(self, state: str | None) -> None:
        """Record the answer to the subscription, or to a ping if *state* is not None.

        Raises:
            Lost: the server does not serve this connection any more.
        """
        self._answer_due_s = None
        if state is None:
            return
        if state not in self._expected:
            raise Lost(f"the server says the connection is {state!r}")
        if state == "live":  # a live connection never catches up again (PROTOCOL 8.3)
            self._expected = ("joining", "live")

    def ping_instead(self) -> None:
        """Send pings as keep-alives: the server has no keep-alive, or a proxy needs answers."""
        self._keep_alive = PING


class MonotonicCursor:
    """The position of a connection, to drop late events that would move it back (PROTOCOL 8.8).

    The cursor of a row of a copy names a page P, after which the log continues. The row ranks
    before all operations of page P. All rows of a bucket have the same rank, so they may arrive in
    any order and repeatedly. Each operation has a different rank and must not be repeated.
    """

    def __init__(self) -> None:
        self._last = (0, False, -1)

    def rises(self, event: Event, cursor: str) -> bool:
        """Return True unless *event*, of a message with *cursor*, moves the position back."""
        if event.name == RESET:
            # Do not record *cursor*: it is after this message's rows, which would then be dropped.
            rank = _rank_of(cursor)
            return rank is None or rank > self._last
        return self._rises_to(event.id, above=event.name != LIVE and not is_copied(event.id))

    def moves(self, cursor: str) -> bool:
        """Return True if the *cursor* of a message does not move the position back."""
        return self._rises_to(cursor, above=False)

    def _rises_to(self, text: str, *, above: bool) -> bool:
        rank = _rank_of(text)
        if rank is None:
            return True
        if rank < self._last or (above and rank == self._last):
            return False
        self._last = rank
        return True


def _rank_of(text: str) -> tuple[int, bool, int] | None:
    """Return the rank of a cursor; None if it is not a place and cannot be compared."""
    place = parse_cursor(text)
    if isinstance(place, cursors.Place):
        return place.page, True, place.slot
    if isinstance(place, cursors.Replication):
        return place.page, False, place.bucket
    return None


class Reader:
    """A parser of messages into events, for a subscription from *cursor*.

    Events that would move the position back are dropped (`MonotonicCursor`). A subscription from
    the end of the log has no cursor yet. It begins at the cursor of the reply `subscribed`, unless
    a message of events arrived before the reply.
    """

    def __init__(self, heartbeat: Heartbeat, cursor: str) -> None:
        self._heartbeat = heartbeat
        self._moved = cursor not in ("", NOW)
        self._cursor = MonotonicCursor()

    def items(self, text: str | bytes) -> Iterator[Event | Moved]:
        """Yield the items of one message.

        Raises:
            Refused: the server refuses the subscription.
            Lost: the connection cannot be used any more.
        """
        message = _decode(text)
        if "error" in message:
            self._raise_refusal(message["error"])
        if "reply" in message:
            yield from self._reply(message)
        elif "events" in message:
            yield from self._events(message)
        elif "requestId" in message:  # API Gateway reports a failed function
            raise Lost(str(message.get("message", "the server failed")))

    def _raise_refusal(self, error: Any) -> None:
        if isinstance(error, dict) and (error.get("field"), error.get("value")) == _UNKNOWN:
            self._heartbeat.ping_instead()
            return
        raise _refusal(error)

    def _reply(self, message: dict[str, Any]) -> Iterator[Moved]:
        if message["reply"] == "pong":
            self._heartbeat.on_answer(str(message.get("state")))
        elif message["reply"] == "subscribed":
            self._heartbeat.on_answer(None)
            cursor = message.get("cursor")
            if isinstance(cursor, str) and cursor and not self._moved:
                self._moved = True
                yield Moved(cursor)

    def _events(self, message: dict[str, Any]) -> Iterator[Event | Moved]:
        self._moved = True
        cursor = message.get("cursor")
        cursor = cursor if isinstance(cursor, str) else ""
        for raw in message["events"]:
            event = _event(raw)
            if self._cursor.rises(event, cursor):
                yield event
        if cursor and self._cursor.moves(cursor):
            yield Moved(cursor)


def listen(url: str, wanted: Subscription, cursor: str) -> Generator[Event | Moved, None, None]:
    """Yield the items of one connection to *url* from *cursor* on, until the connection ends.

    Raises:
        Refused: the server gave a final answer.
        Lost: the connection failed or ended, or the server stopped answering.
        WrongUrl: *url* is not a WebSocket address.
    """
    with ExitStack() as stack:
        with failures(url):
            socket = stack.enter_context(connect(url, **connecting(url)))
            probe(socket.socket)
        try:
            socket.send(subscribe_message(cursor, wanted))
            heartbeat = Heartbeat(Timing(), time.monotonic(), socket.response)
            reader = Reader(heartbeat, cursor)
            for text in messages(socket, heartbeat):
                yield from reader.items(text)
        except ConnectionClosed as closed:
            raise Lost(close_reason(closed)) from None


def messages(socket: ClientConnection, heartbeat: Heartbeat) -> Iterator[str | bytes]:
    """Yield the messages of an open connection, and send the pings and keep-alives of *heartbeat*.

    Raises:
        Lost: an answer is overdue.
        ConnectionClosed: the connection ended.
    """
    while True:
        if says := heartbeat.due(time.monotonic()):
            socket.send(says)
        try:
            text = socket.recv(timeout=heartbeat.wait_s(time.monotonic()))
        except TimeoutError:
            continue
        heartbeat.on_message(time.monotonic())
        yield text


async def listen_async(
    url: str, wanted: Subscription, cursor: str
) -> AsyncGenerator[Event | Moved, None]:
    """Yield the items of one connection, like `listen`, without blocking."""
    from websockets.asyncio.client import connect as connect_async

    async with AsyncExitStack() as stack:
        with failures(url):
            socket = await stack.enter_async_context(connect_async(url, **connecting(url)))
            probe(socket.transport.get_extra_info("socket"))
        try:
            await socket.send(subscribe_message(cursor, wanted))
            heartbeat = Heartbeat(Timing(), time.monotonic(), socket.response)
            reader = Reader(heartbeat, cursor)
            while True:
                if says := heartbeat.due(time.monotonic()):
                    await socket.send(says)
                try:
                    async with asyncio.timeout(heartbeat.wait_s(time.monotonic())):
                        text = await socket.recv()
                except TimeoutError:
                    continue
                heartbeat.on_message(time.monotonic())
                for item in reader.items(text):
                    yield item
        except ConnectionClosed as closed:
            raise Lost(close_reason(closed)) from None


def subscribe_message(cursor: str, wanted: Subscription) -> str:
    """Return the message that subscribes to *wanted* from *cursor* on, without empty fields."""
    message: dict[str, Any] = {"action": "subscribe", "feed": wanted.feed, "from": cursor or NOW}
    if _EVENT_ID.fullmatch(cursor):
        message = {"action": "resume", "feed": wanted.feed, "cursor": cursor}
    message |= wanted.lists() | {"encoding": "gzip"} | dict.fromkeys(wanted.switches(), True)
    if wanted.password:
        message["password"] = wanted.password
    return json.dumps(message, separators=(",", ":"))


def connecting(url: str) -> dict[str, Any]:
    """Return the options of a connection to *url*.

    Raises:
        WrongProxy: the environment names a proxy that cannot be used.
    """
    proxy = proxy_of(url)
    return {**OPTIONS, "proxy": proxy and proxy.url}


def probe(socket: sockets.socket) -> None:
    """Enable TCP keep-alive on *socket*, as far as the operating system supports it.

    Raises:
        OSError: the connection has ended already.
    """
    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for name, value in PROBES.items():
        if hasattr(sockets, name):
            socket.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, name), value)


@contextmanager
def failures(url: str) -> Iterator[None]:
    """Translate errors of websockets, while connecting, to errors of the client."""
    try:
        yield
    except InvalidStatus as error:
        answer = error.response
        after_s = retry_after_s(answer.headers)
        raise error_of(
            answer.status_code, bytes(answer.body or b""), url, after_s=after_s
        ) from None
    except InvalidURI as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except (OSError, InvalidHandshake, EOFError, ConnectionClosed) as error:
        # TimeoutError is an OSError. A server that crashes during the handshake closes the
        # connection.
        raise unreachable(url, str(error) or type(error).__name__) from None


def close_reason(closed: ConnectionClosed) -> str:
    frame = closed.rcvd
    if frame is None:
        return "the connection broke"
    why = f"{frame.code} {frame.reason}".strip()
    return f"the server closed the connection ({why})"


def _unpack(text: str) -> bytes:
    """Return the unpacked content of a compressed message."""
    inflater = zlib.decompressobj(wbits=31)  # accept gzip only
    plain = inflater.decompress(a2b_base64(text), UNPACKED_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("cut off, or too large")
    return plain


def _decode(text: str | bytes) -> dict[str, Any]:
    try:
        is_plain = isinstance(text, bytes) or text.startswith("{")
        message = json.loads(text if is_plain else _unpack(str(text)), parse_float=parse_number)
    except (ValueError, zlib.error):
        message = None
    if not isinstance(message, dict):
        raise Lost("the server sent a message that is not a JSON object")
    return message


def _event(raw: Any) -> Event:
    try:
        return Event(str(raw["id"]), str(raw["event"]), dict(raw.get("data") or {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Lost("the server sent an event without id or name") from None


def _refusal(error: Any) -> Refused | Lost:
    fields = error if isinstance(error, dict) else {}
    return error_of_code(str(fields.get("message", error)), str(fields.get("code", "")))
