"""
One WebSocket connection: subscribe, receive, and ping so that it is neither cut nor dead.

`Heartbeat` and `Reader` decide; `listen` and `listen_async` do the same with one socket each.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tidings.client.errors import Lost, Refused, WrongUrl
from tidings.client.events import LIVE, RESET, Event, Moved, parsed
from tidings.client.retry_policy import error_of, error_of_code
from tidings.client.subscription import Subscription
from tidings.core.model import cursors
from tidings.core.model.cursors import NOW
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import connect

CONNECT_S = 10.0
CLOSE_S = 1.0  # a server that does not say goodbye within this is left without one
MESSAGE_BYTES_MAX = 1024 * 1024  # the server sends at most 128 KB (API Gateway)
_EVENT_ID = re.compile("[0-9a-f]{24}", re.ASCII | re.IGNORECASE)
PING = '{"action":"ping"}'
OPTIONS: dict[str, Any] = {
    "open_timeout": CONNECT_S,
    "close_timeout": CLOSE_S,
    "max_size": MESSAGE_BYTES_MAX,
    "ping_interval": None,  # the protocol has pings of its own, which reach the functions
}
_FOLLOWING = ("catching-up", "live")


@dataclass(frozen=True, slots=True)
class Timing:
    """PROTOCOL 8.7. The subscription is given longer than a pong: its function may start cold."""

    ping_every_s: float = 240.0
    pong_within_s: float = 10.0
    subscribed_within_s: float = 30.0


class Heartbeat:
    """When to ping, and whether the server still answers. Times are monotonic seconds."""

    def __init__(self, timing: Timing, now_s: float) -> None:
        self._timing = timing
        self._answer_due_s: float | None = now_s + timing.subscribed_within_s
        self._ping_due_s = now_s + timing.ping_every_s
        self._expected: tuple[str, ...] = _FOLLOWING

    def wait_s(self, now_s: float) -> float:
        """How long nothing is due; at least a moment, so that it can be waited for."""
        due_s = self._ping_due_s if self._answer_due_s is None else self._answer_due_s
        return max(0.001, due_s - now_s)

    def due(self, now_s: float) -> str | None:
        """
        The ping to send now, if any.

        Raises:
            Lost: an answer is overdue.
        """
        if self._answer_due_s is not None:
            if now_s >= self._answer_due_s:
                raise Lost("the server does not answer")
            return None
        if now_s < self._ping_due_s:
            return None
        self._answer_due_s = now_s + self._timing.pong_within_s
        self._ping_due_s = now_s + self._timing.ping_every_s
        return PING

    def answered(self, state: str | None) -> None:
        """
        The subscription (*state* None) or a ping was answered.

        Raises:
            Lost: the server is not following on this connection any more.
        """
        self._answer_due_s = None
        if state is None:
            return
        if state not in self._expected:
            raise Lost(f"the server says the connection is {state!r}")
        if state == "live":  # there is no way back (PROTOCOL 8.3)
            self._expected = ("live",)


class Ascent:
    """
    How far a connection has come: nothing that comes late leads back (PROTOCOL 8.8).

    A copy stands before the end of the page that the log goes on behind. Rows of a bucket may
    come again, so they count as one place; an operation may not.
    """

    def __init__(self) -> None:
        self._last = (0, False, -1)

    def rises(self, event: Event, cursor: str) -> bool:
        """Whether *event*, of a message with *cursor*, is not behind what came before."""
        if event.name == RESET:  # the cursor is behind the rows that come with it
            rank = _rank_of(cursor)
            return rank is None or rank > self._last
        return self._rises_to(event.id, above=event.name != LIVE and not _is_copied(event.id))

    def moves(self, cursor: str) -> bool:
        """Whether the *cursor* of a message does not lead back."""
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
    """None where it is no place, and nothing can be said of it."""
    place = parsed(text)
    if isinstance(place, cursors.Place):
        return place.page, True, place.slot
    if isinstance(place, cursors.Replication):
        return place.page, False, place.bucket
    return None


def _is_copied(event_id: str) -> bool:
    return isinstance(parsed(event_id), cursors.Replication)


class Reader:
    """
    Messages to events, for a subscription from *cursor*.

    What does not ascend is left out (`Ascent`). The cursor of `subscribed` counts only for one
    from the end of the log, which has no cursor of its own yet, and only before anything else
    moved it.
    """

    def __init__(self, heartbeat: Heartbeat, cursor: str) -> None:
        self._heartbeat = heartbeat
        self._moved = cursor not in ("", NOW)
        self._ascent = Ascent()

    def signs(self, text: str | bytes) -> Iterator[Event | Moved]:
        """
        What one message brings.

        Raises:
            Refused: the server will not have this subscription.
            Lost: the connection is of no more use.
        """
        message = _decode(text)
        if "error" in message:
            raise _refusal(message["error"])
        if "reply" in message:
            yield from self._reply(message)
        elif "events" in message:
            yield from self._events(message)
        elif "requestId" in message:  # API Gateway speaks for a function that failed
            raise Lost(str(message.get("message", "the server failed")))

    def _reply(self, message: dict[str, Any]) -> Iterator[Moved]:
        if message["reply"] == "pong":
            self._heartbeat.answered(str(message.get("state")))
        elif message["reply"] == "subscribed":
            self._heartbeat.answered(None)
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
            if self._ascent.rises(event, cursor):
                yield event
        if cursor and self._ascent.moves(cursor):
            yield Moved(cursor)


def listen(url: str, wanted: Subscription, cursor: str) -> Generator[Event | Moved, None, None]:
    """
    One connection to *url* from *cursor* on, until it ends.

    Raises:
        Refused: the server will not answer otherwise.
        Lost: the connection failed, ended or stopped answering.
        WrongUrl: *url* is no WebSocket address.
    """
    with ExitStack() as stack:
        with failures(url):
            socket = stack.enter_context(connect(url, **OPTIONS))
        try:
            socket.send(subscribe_message(cursor, wanted))
            heartbeat = Heartbeat(Timing(), time.monotonic())
            reader = Reader(heartbeat, cursor)
            while True:
                if ping := heartbeat.due(time.monotonic()):
                    socket.send(ping)
                try:
                    text = socket.recv(timeout=heartbeat.wait_s(time.monotonic()))
                except TimeoutError:
                    continue
                yield from reader.signs(text)
        except ConnectionClosed as closed:
            raise Lost(goodbye(closed)) from None


async def listen_async(
    url: str, wanted: Subscription, cursor: str
) -> AsyncGenerator[Event | Moved, None]:
    """As `listen`, without blocking."""
    from websockets.asyncio.client import connect as connect_async

    async with AsyncExitStack() as stack:
        with failures(url):
            socket = await stack.enter_async_context(connect_async(url, **OPTIONS))
        try:
            await socket.send(subscribe_message(cursor, wanted))
            heartbeat = Heartbeat(Timing(), time.monotonic())
            reader = Reader(heartbeat, cursor)
            while True:
                if ping := heartbeat.due(time.monotonic()):
                    await socket.send(ping)
                try:
                    async with asyncio.timeout(heartbeat.wait_s(time.monotonic())):
                        text = await socket.recv()
                except TimeoutError:
                    continue
                for sign in reader.signs(text):
                    yield sign
        except ConnectionClosed as closed:
            raise Lost(goodbye(closed)) from None


def subscribe_message(cursor: str, wanted: Subscription) -> str:
    """The message that asks for *wanted* from *cursor* on; what is empty is left out."""
    message: dict[str, Any] = {"action": "subscribe", "feed": wanted.feed, "from": cursor or NOW}
    if _EVENT_ID.fullmatch(cursor):
        message = {"action": "resume", "feed": wanted.feed, "cursor": cursor}
    message |= wanted.lists()
    if wanted.leave:
        message["leave"] = True
    if wanted.password:
        message["password"] = wanted.password
    return json.dumps(message, separators=(",", ":"))


@contextmanager
def failures(url: str) -> Iterator[None]:
    """Around connecting: raises errors of the client in place of those of websockets."""
    try:
        yield
    except InvalidStatus as error:
        raise error_of(error.response.status_code, bytes(error.response.body or b"")) from None
    except InvalidURI as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except (OSError, InvalidHandshake, EOFError, ConnectionClosed) as error:
        # A TimeoutError is an OSError; a server that dies amid the handshake closes the connection.
        raise Lost(str(error) or type(error).__name__) from None


def goodbye(closed: ConnectionClosed) -> str:
    frame = closed.rcvd
    if frame is None:
        return "the connection broke"
    why = f"{frame.code} {frame.reason}".strip()
    return f"the server closed the connection ({why})"


def _decode(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except ValueError:
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
