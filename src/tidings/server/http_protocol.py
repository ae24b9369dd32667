"""
HTTP/1.1 on one connection: head size limits, deadlines, and framing according to RFC 9112.

Uvicorn's protocol accepts heads of any size, does not limit the time to send them, and waits
indefinitely for a client to read its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tidings.core import limits
from tidings.http.asgi_request import ARRIVAL, Arrival
from tidings.server.connections import Connection

if TYPE_CHECKING:
    from tidings.server.connections import Admission

log = logging.getLogger(__name__)
_UPGRADING = (b"connection", b"upgrade", b"http2-settings")
DISCARD_BYTES_MAX = 16 * 1024 * 1024  # of a refused request: the largest body plus its framing


class _Refused(Exception):
    """The request was refused; this aborts the parser, and the protocol has the answer."""


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    async def run_asgi(self, app: Any) -> None:
        """Run *app*; close the connection if it leaves an answer unfinished."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("%s %s failed", self.scope["method"], self.scope["path"])
            if not self.response_started:
                await self.send_500_response()
        finally:
            if not self.response_complete and not self.disconnected:
                self.disconnected = True
                self.transport.close()
                self.on_response()
            self.on_response = _nothing

    async def send(self, message: Any) -> None:
        """Send a part of the answer; in HTTP/1.0, the end of the connection marks its end."""
        if message["type"] == "http.response.start":
            if self.more_body:
                self.keep_alive = False  # the rest of the body would be parsed as a request
            if self.scope["http_version"] != "1.1" and not _has_length(message):
                self.chunked_encoding = False
        elif self.chunked_encoding is False and self.scope["http_version"] != "1.1":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


def _nothing() -> None:
    pass


def _has_length(message: Any) -> bool:
    return any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))


class HttpProtocol(HttpToolsProtocol):
    """One connection. *admission* holds the limits and the idle connections."""

    def __init__(self, *, admission: Admission, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.admission = admission
        self._connection: Connection = None  # type: ignore[assignment]
        self._active: Cycle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_message = self._in_body = False
        self._refusal: tuple[int, str] | None = None
        self._is_deaf = False  # True: ignore all received bytes
        self._unparsed = self._discarded = 0  # bytes of an incomplete part; bytes discarded
        self._size = self._fields = 0  # size and number of fields of a head, or of trailers
        self._arrival = Arrival()  # of the latest body
        self._queued = 0  # bytes of pipelined requests that wait for an earlier answer

    # The connection.

    def connection_made(self, transport: Any) -> None:
        bounds = self.admission.bounds
        is_admitted = self.admission.admit(len(self.connections))
        self._connection = Connection(transport, bounds, self._is_receiving)
        super().connection_made(self._connection)  # type: ignore[arg-type]
        if is_admitted:
            self._wait(bounds.head_s)
        else:
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._connection.lost()
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in (self._active, *waiting):  # the base class only has the latest one
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Implements `Idle`."""
        self._connection.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.stalled()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.written()

    def shutdown(self) -> None:
        self.admission.remove_idle(self)
        if self._active is None:
            self._connection.finish()  # without waiting for the rest of a head
        else:
            self.cycle.keep_alive = False

    # Deadlines. They do not apply while an answer is sent: the app limits the time of a body.

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self.admission.add_idle(self)
        self._deadline = self.loop.call_later(seconds, self._on_deadline)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.admission.remove_idle(self)

    def _on_deadline(self) -> None:
        if self._in_message:
            self._refuse(408, f"a request head is sent within {self.admission.bounds.head_s:g} s")
        else:
            self.transport.close()

    # Receiving.

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self._connection.is_lingering:
            self._discarded += len(data)
            if self._discarded > DISCARD_BYTES_MAX:
                self._connection.abort()
            if self._is_deaf:
                return
        was_idle = not self._in_message
        self._unparsed += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "not a request of HTTP/1.1")))
            return
        if self._unparsed > limits.HEAD_BYTES_MAX:
            self._refuse(431, f"a request head holds at most {limits.HEAD_BYTES_MAX} bytes")
        elif was_idle and self._in_message and not self._in_body and self._active is None:
            self._wait(self.admission.bounds.head_s)  # from the first byte of a later request

    def _parse(self, data: bytes) -> None:
        """
        Parse *data*. Ignore an upgrade to anything but a WebSocket, such as curl's to HTTP/2.

        Raises:
            HttpParserError: *data* breaks a rule.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._stop_waiting()
                self._in_message = self._in_body = False
                self.handle_websocket_upgrade()
                return
            fields = [each for each in self.headers if each[0] not in _UPGRADING]
            head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
            head += [b"%b: %b" % each for each in fields]
            self.parser = httptools.HttpRequestParser(self)  # the old one refuses the body
            self._parse(b"\r\n".join(head) + b"\r\n\r\n" + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        is_long = self._queued > limits.HEAD_BYTES_MAX
        if is_long or len(self.pipeline) >= limits.PIPELINED_MAX:
            self.cycle.keep_alive = False  # the client repeats the requests after this one
            self._is_deaf = True
            raise _Refused
        self._in_message, self._in_body = True, False
        self._size = self._fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > limits.HEAD_FIELDS_MAX:
            raise self._refused(431, f"there are at most {limits.HEAD_FIELDS_MAX} fields")
        self._count(len(name) + len(value) + 4)
        if not self._in_body:  # ignore trailers: they must not change a head that was checked
            super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > limits.HEAD_BYTES_MAX:
            raise self._refused(431, f"a request head holds at most {limits.HEAD_BYTES_MAX} bytes")

    def _refused(self, status: int, message: str) -> _Refused:
        self._refusal = status, message
        return _Refused()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_body = True
        size = self._size
        self._unparsed = self._size = self._fields = 0
        scope, version = self.scope, self.parser.get_http_version()
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        path, query = self._target(scope["method"])
        self._check_host(version)
        if self.parser.should_upgrade():
            if self._active is not None and self._should_upgrade():
                raise self._refused(400, "a WebSocket needs a connection without other requests")
            self.url = path + b"?" + query if query else path
            return
        scope["raw_path"], scope["query_string"] = path, query
        decoded = path.decode("ascii")
        scope["path"] = unquote(decoded) if "%" in decoded else decoded
        scope[ARRIVAL] = self._arrival = Arrival()  # type: ignore[literal-required]
        keeps = version == "1.1" and self.parser.should_keep_alive()
        self._start(self._cycle(keeps), size)

    def _target(self, method: str) -> tuple[bytes, bytes]:
        """
        Return the path and query of the request; the host of an absolute target replaces `Host`.

        Raises:
            _Refused: the target is invalid.
        """
        if self.url == b"*" and method == "OPTIONS":
            return self.url, b""
        if method == "CONNECT":
            raise self._refused(405, "this is no proxy")
        try:
            url = httptools.parse_url(self.url)
            self.url.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            raise self._refused(400, "the request target is not a URL") from None
        if url.host is not None:
            host = url.host if url.port is None else b"%b:%d" % (url.host, url.port)
            self.headers[:] = [each for each in self.headers if each[0] != b"host"]
            self.headers.append((b"host", host))
        path = url.path or (b"/" if url.host is not None else b"")
        if not path.startswith(b"/"):
            raise self._refused(400, "the request target is not a path")
        return path, url.query or b""

    def _check_host(self, version: str) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise self._refused(400, "HTTP/1.1 takes exactly one Host field")

    def _cycle(self, keeps_alive: bool) -> Cycle:
        return Cycle(
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

    def _start(self, cycle: Cycle, size: int) -> None:
        self.cycle = cycle
        if self._active is None:
            self._run(cycle)
        else:
            self._queued += size
            self.pipeline.appendleft((cycle, self.app))

    def _run(self, cycle: Cycle) -> None:
        self._active = cycle
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
        self._arrival.is_complete = True
        super().on_message_complete()
        if self._connection.is_lingering:
            self._connection.finish()

    # Answering.

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
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
        self._wait(bounds.head_s if self._in_message else bounds.keep_alive_s)

    def _is_receiving(self) -> bool:
        return self._in_message

    def _refuse(self, status: int, message: str) -> None:
        """Answer a violation of HTTP itself, and close the connection."""
        self._stop_waiting()
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
        self.flow.resume_reading()
        self._in_message = True  # discard the bytes that still arrive
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
