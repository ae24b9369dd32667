"""HTTP/1.1 on one connection: limits on the size of heads, deadlines, and framing as in RFC 9112.

Uvicorn's protocol, on which this one is based, accepts heads of any size, does not limit the time
for sending a head, and waits indefinitely for a client to read its answer.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import logging
import resource
import socket
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tidings.core import limits
from tidings.http.asgi import ARRIVAL, CUT_AFTER, WRITE_NOW, Arrival, has_length
from tidings.server.meters import OTHER, Meters
from tidings.server.posts import HEAD_BYTES_MAX as LEARNED_BYTES_MAX
from tidings.server.posts import Post

if TYPE_CHECKING:
    from tidings.server.posts import Posts

log = logging.getLogger(__name__)
Abort = Callable[[], object]
REPORT_EVERY_S = 60.0  # minimum time between reports, so that many connections do not flood the log
HOLD_S = 0.005  # wait for the body of a post with a known head; other bodies take the ordinary way
FIELDS_KEPT = 256  # encoded header fields of different responses that are cached
_UPGRADING = (b"connection", b"upgrade", b"http2-settings")
# Maximum number of bytes of a refused request that are discarded. After more bytes, the connection
# is reset. The maximum is larger than the largest body with its framing.
DISCARD_BYTES_MAX = 16 * 1024 * 1024


def raise_file_limit() -> int:
    """Raise the process's limit of open files up to `limits.FILES_MAX`; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, limits.FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.FILES_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_within(files: int) -> int:
    """Return how many connections a process can accept if it may open *files* file descriptors."""
    return max(1, files - min(limits.FILES_RESERVED, files // 4))


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of a server: the number of connections, and the seconds of a connection's phases."""

    connections: int = limits.FILES_MAX
    head_s: float = limits.HEAD_S
    keep_alive_s: float = limits.KEEP_ALIVE_S
    stall_s: float = limits.STALL_S
    close_s: float = limits.CLOSE_S
    linger_s: float = limits.LINGER_S
    subscribe_s: float = limits.SUBSCRIBE_S


@dataclass(slots=True)
class Admission:
    """The admission of connections up to the limit of *bounds*.

    At the limit, a new connection replaces the connection that has been idle for longest, so that
    idle connections lock no client out. A connection is idle during its TLS handshake, until the
    head of the next request is complete, and as a WebSocket until its client subscribes. If no
    connection is idle, the new connection is refused. *meters* counts what the connections do.
    """

    bounds: RequestLimits
    meters: Meters = field(default_factory=Meters)
    # True if the server stops: the next answer of a connection is its last one.
    is_ending: bool = False
    # The functions that reset the idle connections, in the order in which the connections became
    # idle.
    _idle: dict[Abort, None] = field(default_factory=dict)
    _evicted: int = 0
    _rejection: int = 0
    _reported_s: float = float("-inf")

    def admit(self, count: int) -> bool:
        """Return True if a connection may be accepted in addition to *count* open ones.

        If there are too many, first close an idle connection.
        """
        if count < self.bounds.connections:
            return True
        oldest = next(iter(self._idle), None)
        if oldest is None:
            self._rejection += 1
        else:
            del self._idle[oldest]
            self._evicted += 1
            oldest()
        self._report()
        return oldest is not None

    def add_idle(self, abort: Abort) -> None:
        """Record that the connection that *abort* resets waits for its client from now on."""
        self._idle.pop(abort, None)  # it becomes the latest one
        self._idle[abort] = None

    def remove_idle(self, abort: Abort) -> None:
        """Record that the connection that *abort* resets is in use, or closed."""
        self._idle.pop(abort, None)

    def _report(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._reported_s + REPORT_EVERY_S:
            return
        log.warning(
            "the limit of open files allows %d connections, and all are open: refused %d new"
            " connections and closed %d idle connections since the last report; raise LimitNOFILE",
            self.bounds.connections,
            self._rejection,
            self._evicted,
        )
        self._reported_s, self._rejection, self._evicted = now_s, 0, 0


class ClosingTransport:
    """A transport that limits the time for closing, and reports to *admission* when it is idle.

    `close` sends the buffered bytes for at most `close_s`, and then resets the connection. If
    *is_receiving* returns True, a request is still arriving. `close` then reads and discards the
    rest of the request first. Otherwise the reset would destroy the answer before the client, which
    is still sending, has read it.
    """

    def __init__(
        self, transport: asyncio.Transport, admission: Admission, is_receiving: Callable[[], bool]
    ) -> None:
        self._transport, self._admission, self._is_receiving = transport, admission, is_receiving
        self.bounds, self.meters = admission.bounds, admission.meters
        self._loop = asyncio.get_running_loop()
        # The timer of `wait` is set once for many requests: when it fires, it is set again if the
        # deadline was moved in the meantime. *_on_deadline* is None while the connection is in use.
        self._deadline: asyncio.TimerHandle | None = None
        self._fires_s = self._deadline_s = 0.0
        self._on_deadline: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._cut: asyncio.TimerHandle | None = None
        self.is_lingering = False
        self.abort = transport.abort
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.meters.sent_bytes += len(data)
        self._transport.write(data)

    def wait(self, seconds: float, on_deadline: Callable[[], None]) -> None:
        """Call *on_deadline* after *seconds*, unless `stop_waiting` is called first.

        Until then the connection is idle, so *admission* may close it.
        """
        self._admission.add_idle(self.abort)
        self._on_deadline, self._deadline_s = on_deadline, self._loop.time() + seconds
        if self._deadline is None or self._deadline_s < self._fires_s:
            self._set_timer()

    def stop_waiting(self) -> None:
        """Record that the connection is in use."""
        self._on_deadline = None
        self._admission.remove_idle(self.abort)

    def _set_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._fires_s = self._deadline_s
        self._deadline = self._loop.call_at(self._fires_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._deadline, on_deadline = None, self._on_deadline
        if on_deadline is None:
            return
        if self._fires_s < self._deadline_s:
            self._set_timer()
        else:
            self._on_deadline = None
            on_deadline()

    def is_closing(self) -> bool:
        """Return True if no more data may be written."""
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Discard the rest of a request, send the buffered bytes, and close the connection."""
        if self.is_closing():
            return
        if not self._is_receiving():
            self.finish()
            return
        self.is_lingering = True
        self._timer = self._loop.call_later(self.bounds.linger_s, self.finish)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def finish(self) -> None:
        """Send the buffered bytes and close the connection, without reading any more."""
        self._cancel()
        self.is_lingering = False
        if self._cut is not None:  # `_cut_unread` needs the open socket, so close after it
            self._timer = self._loop.call_at(self._cut.when(), self.finish)
            return
        self._transport.close()
        self._timer = self._loop.call_later(self.bounds.close_s, self._reset)

    def on_closed(self) -> None:
        """Cancel all timers, because the connection is closed."""
        self.stop_waiting()
        if self._deadline is not None:
            self._deadline.cancel()
        self._cancel()
        self.on_drained()
        if self._cut is not None:
            self._cut.cancel()

    def on_full(self) -> None:
        """Reset the connection unless its client reads something within `stall_s`."""
        self.on_drained()
        size = self._unread()
        self._stall = self._loop.call_later(self.bounds.stall_s, self._check_stall, size)

    def on_drained(self) -> None:
        """Stop the stall timer, because the client has read enough of the buffer."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_stall(self, size: int) -> None:
        if self._unread() < size:
            self.on_full()
        else:
            self._reset()

    def cut_after(self, seconds: float) -> None:
        """Reset the connection after *seconds* unless the client has received everything."""
        if self._cut is None:
            self._cut = self._loop.call_later(seconds, self._cut_unread)

    def _cut_unread(self) -> None:
        self._cut = None
        if self._unread():
            self._reset()

    def _reset(self) -> None:
        """Abort the connection, and discard the data in the kernel, which would still send it."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.abort()

    def _unread(self) -> int:
        """Return how many bytes the client's machine has not acknowledged yet."""
        size = self._transport.get_write_buffer_size()
        connection = self._transport.get_extra_info("socket")
        if connection is None:
            return size
        # Also count the bytes in the kernel's buffer, which may be megabytes.
        queued = array.array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
        return size + queued[0]

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Fields(NamedTuple):
    """The encoded header fields of a response.

    *length* is the Content-Length, or None. *is_last* is True if the fields close the connection.
    """

    text: bytes
    length: int | None
    is_last: bool


@lru_cache(maxsize=FIELDS_KEPT)
def _encode_fields(headers: tuple[tuple[bytes, bytes], ...]) -> _Fields:
    """Encode *headers*, which are the same in most responses."""
    length, is_last = None, False
    headers = tuple((name.lower(), value) for name, value in headers)
    for name, value in headers:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise ValueError(f"not a header field: {name!r}")
        if name == b"content-length":
            length = int(value)
        is_last = is_last or (name == b"connection" and b"close" in value.lower())
    return _Fields(b"".join(b"%b: %b\r\n" % each for each in headers), length, is_last)


class _Refused(Exception):
    """The request is refused. This exception stops the parser; `_refusal` has the answer."""


class Cycle(RequestResponseCycle):
    """One request and its answer. *began_s* is the time at which the app began to handle it."""

    meters: Meters
    began_s: float
    arrival: Arrival
    head = b""  # the bytes that begin with the head, if they arrived together

    async def run_asgi(self, app: Any) -> None:
        """Run *app*; close the connection if *app* has not completed its answer."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            fields = {"method": self.scope["method"], "path": self.scope["path"], "status": 500}
            log.exception("%(method)s %(path)s failed", fields)
            if not self.response_started:
                await self.send_500_response()
        finally:
            if not self.response_complete and not self.disconnected:
                self.disconnected = True
                self.transport.close()
                self.on_response()
            self.on_response = lambda: None
            # Without this reference to itself, the cycle is freed now, and not by the garbage
            # collector.
            del self.scope[WRITE_NOW]  # type: ignore[misc]

    def write_now(self, frame: bytes) -> bool:
        """Implement `asgi.WriteNow`, for an answer that has begun and has a body in chunks."""
        if not self.chunked_encoding or self.disconnected or self.response_complete:
            return False
        if not self.flow.write_paused:
            self.transport.write(frame)
            return True
        return False

    async def send(self, message: Any) -> None:
        """Send a part of the answer.

        HTTP/1.0 has no chunks, so the end of the connection is the end of an answer without a
        length.
        """
        if message["type"] != "http.response.start" or self.response_started:
            if self.chunked_encoding is False and self.scope["http_version"] != "1.1":
                self.expected_content_length = len(message.get("body", b""))
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if not self.disconnected:
            self._send_head(message["status"], (*self.default_headers, *message["headers"]))

    def _send_head(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        fields = _encode_fields(headers)
        self.response_started, self.waiting_for_100_continue = True, False
        self.expected_content_length = fields.length or 0
        self.chunked_encoding = (
            fields.length is None
            and has_length(status)
            and self.scope["method"] != "HEAD"
            and self.scope["http_version"] == "1.1"
        )
        if fields.is_last or self.more_body:  # the rest of the body would be parsed as a request
            self.keep_alive = False
        more = b"transfer-encoding: chunked\r\n" if self.chunked_encoding else b""
        if not (self.keep_alive or fields.is_last):
            more += b"connection: close\r\n"
        self.transport.write(b"%b%b%b\r\n" % (STATUS_LINE[status], fields.text, more))
        seconds = time.monotonic() - self.began_s
        route = self.arrival.route or OTHER
        self.meters.count_answer(route, self.scope["method"], status, seconds)
        if self.meters.observe_answer is not None:
            self.meters.observe_answer(self.scope, route, status, seconds)


class HttpProtocol(HttpToolsProtocol):
    """The protocol of one connection.

    *admission* has the limits and the idle connections of the server. If *is_admitted* is True, the
    connection was already admitted before its TLS handshake.
    """

    def __init__(
        self,
        *,
        admission: Admission,
        is_admitted: bool = False,
        posts: Posts | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.admission, self._is_admitted, self._posts = admission, is_admitted, posts
        self._post: Post | None = None  # the post that is being committed
        self._held = b""  # bytes that wait for the rest of a post, or for its answer
        self._first = b""  # the bytes received last, if they begin with a head
        self._connection: ClosingTransport = None  # type: ignore[assignment]
        self._active: Cycle | None = None
        self._in_message = self._in_body = False
        self._refusal: tuple[int, str] | None = None
        self._is_deaf = False  # True: ignore all received bytes
        # `_unparsed` counts the bytes received since the last complete head or part of a body, and
        # `_discarded` the bytes that were discarded.
        self._unparsed = self._discarded = 0
        self._size = self._fields = 0  # bytes and number of fields in the current head or trailers
        self._arrival = Arrival()  # the arrival of the latest request's body
        self._queued = 0  # bytes of pipelined requests that wait for an earlier answer

    # The connection.

    def connection_made(self, transport: Any) -> None:
        bounds = self.admission.bounds
        is_admitted = self._is_admitted or self.admission.admit(len(self.connections))
        self._connection = ClosingTransport(transport, self.admission, lambda: self._in_message)
        super().connection_made(self._connection)  # type: ignore[arg-type]
        if is_admitted:
            self._connection.wait(bounds.head_s, self._on_deadline)
        else:
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.on_closed()
        waiting: list[Any] = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        self._held = b""
        if self._post is not None:
            self._post.disconnected, self._active = True, None
        for cycle in (self._active, *waiting):  # the base class notifies only the latest cycle
            if cycle is not None:
                cycle.disconnected = cycle.arrival.is_gone = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.on_full()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.on_drained()

    def shutdown(self) -> None:
        """Close the connection when its request is answered, also one that has not arrived yet."""
        self.admission.remove_idle(self._connection.abort)
        if self._post is not None:
            self._post.keep_alive = False
        elif self._active is not None:
            self.cycle.keep_alive = False
        elif self.cycle is not None and not self._in_message:
            self._connection.finish()  # it was kept for a later request

    # Deadlines. None applies between a complete head and the end of its answer, because the app
    # limits this time.

    def _on_deadline(self) -> None:
        if self._in_message:
            head_s = self.admission.bounds.head_s
            self._refuse(408, f"the head of a request must be sent within {head_s:g} s")
        else:
            self.transport.close()

    # Receiving.

    def data_received(self, data: bytes) -> None:
        was_held = bool(self._held)
        if was_held:
            data, self._held = self._held + data, b""
        if self._post is not None:
            self._held = data
            self.flow.pause_reading()
        elif self._posts is None or not self._take_post(data, self._posts, may_hold=not was_held):
            self._receive(data)

    def _take_post(self, data: bytes, posts: Posts, *, may_hold: bool) -> bool:
        """Return True if *data* is a post with a known head, or its beginning.

        A beginning is held only once if *may_hold* is True, so that a body in many pieces has the
        time limits of other bodies.
        """
        if self._in_message or self._active is not None or self.flow.write_paused:
            return False
        if self._is_deaf or self._connection.is_lingering or self.admission.is_ending:
            return False
        if self.admission.meters.observe_answer is not None:
            return False
        found = posts.match(data)
        if found is None or len(data) > found.end or (len(data) < found.end and not may_hold):
            return False
        if len(data) < found.end:  # the body often arrives in a packet right after the head
            self._held = data
            self.loop.call_later(HOLD_S, self._stop_holding, data)
            return True
        self.admission.meters.received_bytes += len(data)
        self._connection.stop_waiting()
        self._post = Post(self, found, data, time.monotonic())
        posts.add(self._post)
        return True

    def _stop_holding(self, data: bytes) -> None:
        if self._held is data and self._post is None:
            self._held = b""
            self._receive(data)

    def on_accepted(self, post: Post) -> None:
        """Send the answer of *post*, which is on disk."""
        self._post = None
        if post.disconnected:
            return
        plan = post.found.plan
        text = _encode_fields((*self.server_state.default_headers, *plan.headers)).text
        more = b"" if post.keep_alive else b"connection: close\r\n"
        self.transport.write(b"%b%b%b\r\n" % (STATUS_LINE[plan.status], text, more))
        seconds = time.monotonic() - post.began_s
        self.admission.meters.count_answer(plan.route, "POST", plan.status, seconds)
        if not post.keep_alive:
            self.transport.close()
        self.on_response_complete()
        if self._held:
            self._continue()

    def on_undecided(self, post: Post) -> None:
        """Handle *post* like any other request; nothing of it was written."""
        self._post = self._active = None
        if not post.disconnected:
            self.admission.meters.received_bytes -= len(post.data)
            self._receive(post.data)
            if not post.keep_alive and self._active is not None:
                self.cycle.keep_alive = False
            if self._held:
                self._continue()

    def _continue(self) -> None:
        """Receive the bytes that have arrived during a post."""
        data, self._held = self._held, b""
        self.data_received(data)

    def _receive(self, data: bytes) -> None:
        if self._is_deaf or self._connection.is_lingering:
            self._discarded += len(data)
            if self._discarded > DISCARD_BYTES_MAX:
                self._connection.abort()
            if self._is_deaf:
                return
        was_idle = not self._in_message
        self._first = data if was_idle and self._active is None else b""
        self._unparsed += len(data)
        self.admission.meters.received_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "not a request of HTTP/1.1")))
            return
        if self._unparsed > limits.HEAD_BYTES_MAX:
            self._refuse(431, f"a request head holds at most {limits.HEAD_BYTES_MAX} bytes")
        elif was_idle and self._in_message and not self._in_body and self._active is None:
            # The time for the head of a later request starts at its first byte.
            self._connection.wait(self.admission.bounds.head_s, self._on_deadline)

    def _parse(self, data: bytes) -> None:
        """Parse *data*. Ignore upgrades to HTTP/2, and to anything else except a WebSocket."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._in_message = self._in_body = False
                self.handle_websocket_upgrade()
                return
            fields = [each for each in self.headers if each[0] not in _UPGRADING]
            head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
            head += [b"%b: %b" % each for each in fields]
            # Parse the head again, without the upgrade. The old parser would refuse a body now.
            self.parser = httptools.HttpRequestParser(self)
            self._parse(b"\r\n".join(head) + b"\r\n\r\n" + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        is_long = self._queued > limits.HEAD_BYTES_MAX
        if is_long or len(self.pipeline) >= limits.PIPELINED_MAX:
            # Close after the last accepted request. The client repeats the later ones.
            self.cycle.keep_alive = False
            self._is_deaf = True
            raise _Refused
        self._in_message, self._in_body = True, False
        self._size = self._fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._size += len(url)
        if self._size > limits.HEAD_BYTES_MAX:
            raise self._long_head()
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > limits.HEAD_FIELDS_MAX:
            raise self._rejection(431, f"a head holds at most {limits.HEAD_FIELDS_MAX} fields")
        self._size += len(name) + len(value) + 4
        if self._size > limits.HEAD_BYTES_MAX:
            raise self._long_head()
        if not self._in_body:  # trailers are ignored, because the head has already been checked
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def _long_head(self) -> _Refused:
        return self._rejection(431, f"a request head holds at most {limits.HEAD_BYTES_MAX} bytes")

    def _rejection(self, status: int, message: str) -> _Refused:
        self._refusal = status, message
        return _Refused()

    def on_headers_complete(self) -> None:
        self._connection.stop_waiting()
        self._in_body = True
        size = self._size
        self._unparsed = self._size = self._fields = 0
        scope, version = self.scope, self.parser.get_http_version()
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        path, query = self._target(scope["method"])
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise self._rejection(400, "a request of HTTP/1.1 must have exactly one Host field")
        if self.parser.should_upgrade():
            if self._active is not None and self._should_upgrade():
                raise self._rejection(400, "a WebSocket needs a connection without other requests")
            if sum(value.count(b",") for _, value in self.headers) > limits.HEAD_FIELDS_MAX:
                # The library of WebSockets parses lists in Python.
                rule = f"the head of a WebSocket holds at most {limits.HEAD_FIELDS_MAX} commas"
                raise self._rejection(431, rule)
            self.url = path + b"?" + query if query else path
            return
        scope["raw_path"], scope["query_string"] = path, query
        decoded = path.decode("ascii")
        scope["path"] = unquote(decoded) if "%" in decoded else decoded
        scope[ARRIVAL] = self._arrival = Arrival()  # type: ignore[literal-required]
        keeps = version == "1.1" and self.parser.should_keep_alive()
        keeps = keeps and not self.admission.is_ending
        self._start(self._cycle(keeps), size)

    def _target(self, method: str) -> tuple[bytes, bytes]:
        """Return the path and the query of the request's target.

        If the target is an absolute URL, its host replaces the header `Host`.
        """
        if self.url == b"*" and method == "OPTIONS":
            return self.url, b""
        if method == "CONNECT":
            raise self._rejection(405, "this server is not a proxy")
        try:
            url = httptools.parse_url(self.url)
            self.url.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            raise self._rejection(400, "the request target is not a URL") from None
        if url.host is not None:
            host = b"[%b]" % url.host if b":" in url.host else url.host
            host = host if url.port is None else b"%b:%d" % (host, url.port)
            self.headers[:] = [each for each in self.headers if each[0] != b"host"]
            self.headers.append((b"host", host))
        if url.query and url.query.count(b"&") >= limits.QUERY_FIELDS_MAX:
            rule = f"a query holds at most {limits.QUERY_FIELDS_MAX} fields"
            raise self._rejection(431, rule)
        path = url.path or (b"/" if url.host is not None else b"")
        if not path.startswith(b"/"):
            raise self._rejection(400, "the request target is not a path")
        return path, url.query or b""

    def _cycle(self, keeps_alive: bool) -> Cycle:
        cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and self.scope["http_version"] == "1.1",
            keep_alive=keeps_alive,
            on_response=self.on_response_complete,
        )
        cycle.arrival = self._arrival
        if self._posts is not None and self.scope["method"] == "POST":
            cycle.head = self._first[:LEARNED_BYTES_MAX]
        self._first = b""
        cycle.scope[WRITE_NOW] = cycle.write_now  # type: ignore[literal-required]
        cycle.scope[CUT_AFTER] = self._connection.cut_after  # type: ignore[literal-required]
        return cycle

    def _start(self, cycle: Cycle, size: int) -> None:
        self.cycle = cycle
        if self._active is None:
            self._run(cycle)
        else:
            self._queued += size
            self.pipeline.appendleft((cycle, self.app))

    def _run(self, cycle: Cycle) -> None:
        self._active = cycle
        cycle.meters, cycle.began_s = self.admission.meters, time.monotonic()
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if self.pipeline:
            self._queued += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_message = self._in_body = False
        self._unparsed = 0
        self._arrival.body = bytes(self.cycle.body)
        super().on_message_complete()
        if self._connection.is_lingering:
            self._connection.finish()

    # Answering.

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if (
            self._posts is not None
            and self._arrival.plan is not None
            and self._active is self.cycle
        ):
            self._posts.learn(self.cycle.head, self._arrival.plan)
        self._active = None
        if self.transport.is_closing():
            if self._connection.is_lingering:
                self.flow.resume_reading()
            return
        if self.pipeline:
            cycle: Any = self.pipeline.pop()[0]
            self._queued = self._queued if self.pipeline else 0
            self._run(cycle)
            return
        self.flow.resume_reading()
        bounds = self.admission.bounds
        seconds = bounds.head_s if self._in_message else bounds.keep_alive_s
        self._connection.wait(seconds, self._on_deadline)

    def _refuse(self, status: int, message: str) -> None:
        """Refuse a request that violates HTTP or a limit, and close the connection."""
        self._connection.stop_waiting()
        overflow = self._is_deaf
        self._is_deaf = True
        if overflow or self.transport.is_closing():
            return
        cycle = self._active
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or (cycle is self.cycle and not cycle.response_started):
            self.transport.write(self._error(status, message))
            self.admission.meters.refusals[status] += 1
        self.flow.resume_reading()
        self._in_message = True  # so that `close` discards the bytes that still arrive
        self.transport.close()

    def _error(self, status: int, message: str) -> bytes:
        body = json.dumps({"message": message}).encode()
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
        return head + b"".join(b"%b: %b\r\n" % each for each in fields) + b"\r\n" + body
