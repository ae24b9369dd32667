"""Listen to a feed by Triton's protocol (PROTOCOL 13): register, read all objects, receive changes.

While all objects are read (the bootstrap), new items wait in a bounded buffer. If the buffer
overflows or the connection ends, the listener registers and reads all objects again, so that no
change is missed permanently.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tidings.client.address import base_url, socket_url
from tidings.client.errors import Lost
from tidings.client.feed_api import Objects
from tidings.client.files import make_private
from tidings.client.retries import DELAY_S_MAX, Backoff, Closing, refusal
from tidings.client.websocket import Heartbeat, Timing, close_reason, connecting, failures, messages
from tidings.core.model.operations import decode

INVALID_STATE = "Invalid socket state"
OVERFLOW = "the buffer is full"
ITEMS_MAX = 10_000  # usually a few MB: an item has a few hundred bytes, and never above 64 KB
ANSWER_S = 30.0  # the time limit for the answer to a registration; the function may start cold
HEARTBEAT_S = 27.817  # far below the ten minutes after which idle connections are closed
MIN_TIMEOUT_S = 1.0  # the first delay; short, because a restarted server is available again soon
# The beginnings of final refusals, which another server would also give, and their error codes. The
# registration is repeated after other refusals, such as the refusal of a key over its rate.
_CODES = {"password": "wrong_password", "key": "wrong_key"}
_FINAL = ("password:", "feed:", "key: is", "key: was", "key: has")
_log = logging.getLogger("tidings.listener")


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A registration for *resource*. Read all objects from *route* before handling items."""

    resource: str
    sub_resources: tuple[str, ...]
    route: str


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a bootstrap."""

    resource: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """The end of the bootstrap. Buffered items follow, then new items."""


@dataclass(frozen=True, slots=True)
class Item:
    """A change of the object *id* of *resource*, published at *published_ms*.

    *fields* is the whole item.
    """

    resource: str
    sub_resources: tuple[str, ...]
    id: str
    published_ms: int
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the connection, or an overflow of the buffer.

    The listener registers again after *delay_s*.

    *refused* is True if *reason* is the server's answer to the registration.
    """

    reason: str
    delay_s: float
    refused: bool = False


Signal = Bootstrap | Object | Live | Item | Ended
Fetch = Callable[[Bootstrap], Iterable[Mapping[str, Any]]]


class RefusedRegistration(Lost):
    """A refusal in plain text; most are retried, because another server may know the resource."""


def parse_bootstraps(text: str) -> list[Bootstrap]:
    """Return the bootstraps in the answer to a registration of version 1 or 2.

    Raises:
        RefusedRegistration: the answer is plain text.
        Lost: the answer is invalid.
    """
    try:
        answer = json.loads(text)
    except ValueError:
        raise RefusedRegistration(text) from None
    routes = answer.get("bootstrapRoutes", [answer]) if isinstance(answer, dict) else []
    try:
        return [
            Bootstrap(route["resource"], tuple(route["subResources"]), route["bootstrapRoute"])
            for route in routes
        ]
    except (KeyError, TypeError):
        raise Lost(INVALID_STATE) from None


def parse_item(text: str) -> Item:
    """Return the item in *text*.

    Raises:
        Lost: *text* is not an item; the connection cannot be trusted any further.
    """
    try:
        fields = decode(text)
        kind = fields["changeKind"]
        return Item(
            str(kind["resource"]),
            tuple(kind["subResources"]),
            str(fields["changedResourceId"]),
            int(fields["published"]),
            fields,
        )
    except (ValueError, KeyError, TypeError):
        raise Lost(INVALID_STATE) from None


class Buffer(Protocol):
    """A queue of texts, used by one thread at a time."""

    def put(self, text: str) -> bool:
        """Store *text*; return False if the buffer is full."""

    def take(self) -> str | None:
        """Remove and return the oldest text; None if the buffer is empty."""

    def clear(self) -> None:
        """Remove all texts."""

    def __len__(self) -> int: ...


class MemoryBuffer:
    """Implements `Buffer` in this process."""

    def __init__(self, items_max: int = ITEMS_MAX) -> None:
        self._items_max = items_max
        self._texts: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, text: str) -> bool:
        if len(self._texts) >= self._items_max:
            return False
        self._texts.append(text)
        return True

    def take(self) -> str | None:
        return self._texts.popleft() if self._texts else None

    def clear(self) -> None:
        self._texts.clear()


class SqliteBuffer:
    """Implements `Buffer` in a file, for more items than fit into memory.

    Texts of an earlier process are deleted, because the new process registers and bootstraps again.
    """

    def __init__(self, path: Path | str, items_max: int = 100 * ITEMS_MAX) -> None:
        self._items_max = items_max
        if str(path) != ":memory:":
            make_private(Path(path))
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")  # no data needs to survive a crash
        self._database.execute("CREATE TABLE IF NOT EXISTS item (at INTEGER PRIMARY KEY, text)")
        self._length = 0
        self.clear()

    def __len__(self) -> int:
        return self._length

    def put(self, text: str) -> bool:
        if self._length >= self._items_max:
            return False
        self._database.execute("INSERT INTO item (text) VALUES (?)", (text,))
        self._length += 1
        return True

    def take(self) -> str | None:
        row = self._database.execute("SELECT at, text FROM item ORDER BY at LIMIT 1").fetchone()
        if row is None:
            return None
        self._database.execute("DELETE FROM item WHERE at = ?", (row[0],))
        self._length -= 1
        return str(row[1])

    def clear(self) -> None:
        self._database.execute("DELETE FROM item")
        self._length = 0


class Registration:
    """A registration at *url*, from `__enter__` until `close`.

    A ping is sent after *ping_s* of silence.
    """

    def __init__(self, url: str, message: str, buffer: Buffer, ping_s: float) -> None:
        self._url, self._message, self._buffer = url, message, buffer
        self._timing = Timing(keep_alive_s=math.inf, silent_s=ping_s)
        self._changed = threading.Condition()
        self._failure = ""
        self._thread = threading.Thread(target=self._read, name="tidings-listener", daemon=True)
        self._stack = ExitStack()
        self._socket: ClientConnection
        self.routes: list[Bootstrap] = []

    def __enter__(self) -> Registration:
        """Connect and register.

        Raises:
            Lost: the connection failed, or the answer to the registration is invalid.
        """
        with failures(self._url):
            self._socket = self._stack.enter_context(connect(self._url, **connecting(self._url)))
        try:
            self._socket.send(self._message)
            self.routes = parse_bootstraps(str(self._socket.recv(timeout=ANSWER_S)))
        except (ConnectionClosed, TimeoutError, Lost) as error:
            self._stack.close()
            raise _as_lost(error) from None
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close("closed")
        self._stack.close()
        self._thread.join()
        with self._changed:
            self._buffer.clear()

    def close(self, reason: str) -> None:
        """End the registration; the first reason counts. Any thread may call this method."""
        self._fail(reason)
        self._socket.close()

    def check(self) -> None:
        """Raise if the registration has ended.

        Raises:
            Lost: the registration has ended, so the bootstrap has to start again.
        """
        with self._changed:
            if self._failure:
                raise Lost(self._failure)

    def take(self) -> str:
        """Return the next item as soon as it arrives.

        Items that were received before the end of the registration are still returned.

        Raises:
            Lost: the registration has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or len(self._buffer))
            text = self._buffer.take()
            if text is None:
                raise Lost(self._failure)
            return text

    def _read(self) -> None:
        heartbeat = Heartbeat(self._timing, time.monotonic())
        heartbeat.on_answer(None)
        try:
            for text in map(str, messages(self._socket, heartbeat)):
                if text.startswith('{"reply"'):
                    heartbeat.on_answer(str(json.loads(text).get("state")))
                else:
                    self._keep(text)
                if self._failure:
                    return
        except (ConnectionClosed, Lost) as error:
            self._fail(_as_lost(error).reason)
        finally:
            self._socket.close()

    def _keep(self, text: str) -> None:
        if text.startswith(('{"resource"', '{"bootstrapRoute')):
            self._fail(INVALID_STATE)
            return
        with self._changed:
            if not self._failure and not self._buffer.put(text):
                self._buffer.clear()
                self._failure = OVERFLOW
            self._changed.notify_all()

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()


def registration_message(
    instance: str, service: str, resources: Mapping[str, Sequence[str]], password: str
) -> str:
    """Return a registration: version 1 for one resource, version 2 for several."""
    kinds = [{"resource": name, "subResources": list(subs)} for name, subs in resources.items()]
    fields: dict[str, Any] = {"instance": instance, "service": service}
    fields |= {"changeKind": kinds[0]} if len(kinds) == 1 else {"resources": kinds}
    if password:
        fields["password"] = password
    return json.dumps(fields, separators=(",", ":"))


def _as_lost(error: Exception) -> Lost:
    if isinstance(error, ConnectionClosed):
        return Lost(close_reason(error))
    return error if isinstance(error, Lost) else Lost("failed to register: no answer")


def read_objects(url: str, password: str, bootstrap: Bootstrap) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of the route of *bootstrap*; yield nothing for a route of another service.

    Raises:
        Lost: a page could not be read; register again.
        AccessDenied, Refused: the server gave a final answer.
    """
    parts = urlsplit(bootstrap.route)
    if not (parts.path.startswith("/feeds/") and parts.path.endswith("/objects")):
        return
    with Objects(url, password=password) as objects:
        yield from objects.below(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)))


class Listener(Closing):
    """A listener that registers *service* for *resources*, and registers again after each end.

    *resources* maps each resource to its sub-resources. Iterating yields a `Bootstrap` for each
    resource, followed by an `Object` for each object that *fetch* reads from the route of the
    bootstrap. `Live` follows, then each `Item`. `Ended` precedes each new registration. *fetch*
    receives a `Bootstrap`. The default of *fetch* reads the routes of the feed and ignores routes
    of other services. *retries* limits the consecutive failed attempts; None is unlimited. Close
    the listener, or use `with`.

    Raises:
        ValueError: *resources* is empty, or the delays are invalid.
        WrongUrl: *url* or *ws_url* is not a valid address.
        BackoffFailed, AccessDenied, Refused: while iterating, if no attempt follows any more.
    """

    def __init__(
        self,
        url: str,
        *,
        instance: str,
        service: str,
        resources: Mapping[str, Sequence[str]],
        feed: str = "main",
        password: str = "",
        ws_url: str | None = None,
        fetch: Fetch | None = None,
        buffer: Buffer | None = None,
        min_timeout_s: float = MIN_TIMEOUT_S,
        max_timeout_s: float = DELAY_S_MAX,
        retries: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        if not resources:
            raise ValueError("resources must name at least one resource")
        query = urlencode({"changefeed": feed, "version": 1 if len(resources) == 1 else 2})
        address = socket_url(url, ws_url)
        self._address = f"{address}{'&' if '?' in address else '?'}{query}"
        self._message = registration_message(instance, service, resources, password)
        self._fetch = fetch or partial(read_objects, base_url(url), password)
        self._buffer = MemoryBuffer() if buffer is None else buffer
        self._delays = Backoff(min_timeout_s, max_timeout_s, retries)
        self._heartbeat_s = heartbeat_s
        self._closed = threading.Event()
        self._current: Registration | None = None

    def close(self) -> None:
        """Close the connection and end the iteration. Any thread may call this method."""
        self._closed.set()
        if self._current is not None:
            self._current.close("closed")

    def __iter__(self) -> Iterator[Signal]:
        while not self._closed.is_set():
            try:
                yield from self._register()
            except Lost as lost:
                if self._closed.is_set():
                    return
                ended = self._end_of(lost)
                yield ended
                self._closed.wait(ended.delay_s)

    def _end_of(self, lost: Lost) -> Ended:
        refused = isinstance(lost, RefusedRegistration)
        if refused and lost.reason.startswith(_FINAL):
            code = _CODES.get(lost.reason.partition(":")[0], "")
            raise refusal(lost.reason, code=code)
        delay_s = max(self._delays.next_s(), lost.after_s)
        _log.info("ended: %s; next registration in %.1f s", lost.reason, delay_s)
        return Ended(lost.reason, delay_s, refused)

    def _register(self) -> Iterator[Signal]:
        """Yield the signals of one registration, until it ends by raising `Lost`."""
        _log.info("connecting to %s", self._address)
        registration = Registration(self._address, self._message, self._buffer, self._heartbeat_s)
        with registration:
            self._current = registration
            if self._closed.is_set():
                return
            self._delays.reset()
            yield from self._bootstrap(registration)
            _log.info("live; %d items in the buffer", len(self._buffer))
            yield Live()
            while True:
                yield parse_item(registration.take())

    def _bootstrap(self, registration: Registration) -> Iterator[Signal]:
        for route in registration.routes:
            yield route
            for fields in self._fetch(route):
                registration.check()
                yield Object(route.resource, fields)
        registration.check()
