"""HTTP on a connection: limits, deadlines and framing, whatever a client sends or leaves out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import uvloop

from tests.certificates import write_authority
from tidings.core import limits
from tidings.http.asgi import Message, Receive, Send, wait_for_disconnect
from tidings.server.http_protocol import (
    Admission,
    ClosingTransport,
    RequestLimits,
    connections_within,
)
from tidings.server.http_server import serving
from tidings.server.sockets import SocketApp, Sockets

PATIENCE_S = 180.0
SHORT_S = 0.05  # a deadline of a test that waits for it
LONG_S = 600.0  # one that must not pass
PATIENT = RequestLimits(100, LONG_S, LONG_S, LONG_S, LONG_S, LONG_S)
GET = b"GET /x HTTP/1.1\r\nHost: h\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: h\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
END = GET + b"Connection: close\r\n\r\n"  # a last request
BIG = b"x" * (8 * 1024 * 1024)  # more than the kernel buffers for a client that does not read


class App:
    """Answers what the path says; remembers what it was asked, and which requests have ended."""

    def __init__(self) -> None:
        self.scopes: list[Message] = []
        self.bodies: list[bytes] = []
        self.ended = 0

    def has_ended(self, requests: int) -> bool:
        return self.ended >= requests

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        try:
            if scope["type"] == "websocket":
                await self._socket(receive, send)
            else:
                await self._paths.get(scope["path"], App._echo)(self, receive, send)
        finally:
            self.ended += 1

    async def _echo(self, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await _send(send, 200, body or b"hello")

    async def _big(self, receive: Receive, send: Send) -> None:
        await _send(send, 200, BIG)

    async def _pieces(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one ", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _endless(self, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": BIG, "more_body": True})
            await asyncio.sleep(0)

    async def _waiting(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await wait_for_disconnect(receive)

    async def _refused(self, receive: Receive, send: Send) -> None:
        await _send(send, 401, b"no")

    async def _unfinished(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})

    async def _socket(self, receive: Receive, send: Send) -> None:
        await receive()
        if self.scopes[-1]["path"] != "/ws":
            await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"no"})
            return
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            if event.get("text") == "flood":
                while True:
                    await send({"type": "websocket.send", "bytes": BIG})
            await send({"type": "websocket.send", "text": str(event.get("text"))})

    _paths: ClassVar = {
        "/big": _big,
        "/pieces": _pieces,
        "/endless": _endless,
        "/waiting": _waiting,
        "/refused": _refused,
        "/unfinished": _unfinished,
    }


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes) -> bytes:
        """Send *data*; return the head of the next answer."""
        self.writer.write(data)
        return (await self.reader.readuntil(b"\r\n\r\n")).lower()

    async def rest(self) -> bytes:
        """Return the rest of the data until the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def served(
    app: App, bounds: RequestLimits = PATIENT, grace_s: float = SHORT_S, tls: Path | None = None
) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    clients: list[Client] = []

    async def connect(**options: Any) -> Client:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        opened = await asyncio.open_connection(sock=connection, limit=1024, **options)
        clients.append(Client(*opened))
        return clients[-1]

    options: dict[str, Any] = {"ws_max_size": 1024, "ws_ping_interval": None}
    options |= {"tls_cert": tls, "tls_key": tls, "grace_s": grace_s}
    async with serving(app, listener, bounds=bounds, **options):
        yield connect
    for client in clients:
        client.writer.close()


def play(
    scene: Callable[[App, Callable[[], Awaitable[Client]]], Awaitable[None]],
    bounds: RequestLimits = PATIENT,
) -> None:
    async def run() -> None:
        app = App()
        async with asyncio.timeout(PATIENCE_S), served(app, bounds) as connect:
            await scene(app, connect)

    asyncio.run(run())


def answers(
    data: bytes, *, then_close: bool = True, bounds: RequestLimits = PATIENT
) -> tuple[App, bytes]:
    """Return the app, and the answer to *data* until the connection ends, in lower case."""
    apps: list[App] = []
    told: list[bytes] = []

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(data)
        if then_close:
            client.writer.write_eof()
        told.append((await client.rest()).lower())
        apps.append(app)

    play(scene, bounds)
    return apps[0], told[0]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * limits.HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431),
        (GET + b"x-a: " + b"a" * limits.HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (GET + b"x: y\r\n" * limits.HEAD_FIELDS_MAX + b"\r\n", 431),
        (b"GET /" + b"a" * (4 * limits.HEAD_BYTES_MAX), 431),
        (GET + b"x-a: " + b"a" * (4 * limits.HEAD_BYTES_MAX), 431),
        (GET + b"a" * (4 * limits.HEAD_BYTES_MAX), 431),
        (b"\r\n" * limits.HEAD_BYTES_MAX, 431),
        (b"GET /x?" + b"&a" * limits.QUERY_FIELDS_MAX + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431),
        (
            SOCKET + b"Sec-WebSocket-Protocol: " + b"a," * limits.HEAD_FIELDS_MAX + b",a\r\n\r\n",
            431,
        ),
        (SOCKET + b"x-a: " + b"a" * limits.HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (GET[:-9] + b"\r\n", 400),
        (GET + b"Host: h\r\n\r\n", 400),
        (GET + b"Host: other\r\n\r\n", 400),
        (SOCKET + b"Host: h\r\n\r\n", 400),
        (b"GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        (POST + b"Content-Length: 1, 2\r\n\r\nab", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: +1\r\n\r\na", 400),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\na", 400),
        (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (GET + b" folded: x\r\n\r\n", 400),
        (GET + b"x: a\rb\r\n\r\n", 400),
        (GET + b"x: a\0b\r\n\r\n", 400),
        (b"GET /x HTTP/3.7\r\nHost: h\r\n\r\n", 400),
    ],
)
def test_a_head_beyond_a_rule_is_refused(head: bytes, status: int) -> None:
    """It is refused once, with the reason in the body, and the app is not called."""
    app, told = answers(head, then_close=False)

    assert told.startswith(b"http/1.1 %d " % status)
    assert told.count(b"\r\nconnection: close\r\n") == 1
    assert b'{"message": "' in told
    assert app.bodies == []


@pytest.mark.parametrize(
    "body",
    [
        b"1\r\n{\r\n0\r\nx: " + b"a" * (4 * limits.HEAD_BYTES_MAX),
        b"1\r\n{\r\n0\r\n" + b"x: y\r\n" * (limits.HEAD_FIELDS_MAX + 2),
        b"1;" + b"a" * (4 * limits.HEAD_BYTES_MAX),
    ],
)
def test_trailers_and_extensions_of_chunks_are_bounded(body: bytes) -> None:
    """The app gets a disconnect, and the client gets the reason."""
    app, told = answers(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body, then_close=False)

    assert told.startswith(b"http/1.1 431 ")
    assert (app.bodies, app.ended) == ([], 1)


def test_trailers_do_not_become_fields_of_the_head() -> None:
    """A request cannot add a credential to a head that was checked."""
    chunks = b"1\r\na\r\n0\r\nauthorization: Basic eA==\r\n\r\n"
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    app, _ = answers(head + chunks)

    assert app.bodies == [b"a"]
    assert b"authorization" not in dict(app.scopes[0]["headers"])


def test_the_largest_head_is_accepted() -> None:
    """The limit is that of the whole head."""
    field = b"x-a: " + b"a" * (limits.HEAD_BYTES_MAX - 1024) + b"\r\nConnection: close\r\n\r\n"
    assert answers(GET + field)[1].startswith(b"http/1.1 200 ")


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://other:81/a?b=c", "/a", b"other:81"),
        (b"http://other", "/", b"other"),
        (b"http://[::1]:81/a", "/a", b"[::1]:81"),
        (b"http://[::1]", "/", b"[::1]"),
        (b"/a%2fb", "/a/b", b"h"),
        (b"//a/b", "//a/b", b"h"),
    ],
)
def test_an_absolute_target_names_the_host(target: bytes, path: str, host: bytes) -> None:
    """RFC 9112, 3.2.2: the field `Host` is ignored then."""
    app, _ = answers(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    assert app.scopes[0]["path"] == path
    assert [value for name, value in app.scopes[0]["headers"] if name == b"host"] == [host]


def test_http_1_0_is_answered_without_chunks() -> None:
    """The end of the connection is the end of the answer; a `Host` is not needed."""
    for path, body in ((b"/pieces", b"one two"), (b"/x", b"hello")):
        _, told = answers(b"GET " + path + b" HTTP/1.0\r\n\r\n", then_close=False)
        head, _, rest = told.partition(b"\r\n\r\n")
        assert rest == body
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head


def test_an_answer_says_when_it_was_made() -> None:
    """RFC 9110, 6.6.1: an origin server with a clock sends `Date`; also with an error."""
    for request in (GET + b"Connection: close\r\n\r\n", b"x\r\n\r\n"):
        assert b"\r\ndate: " in answers(request)[1]


def test_pipelined_requests_are_answered_in_order() -> None:
    """Requests that arrive together are answered up to a limit; then the connection is closed in
    order.
    """
    many = limits.PIPELINED_MAX + 1  # the first one is under way
    posts = [POST + b"Content-Length: 2\r\n\r\n%02d" % each for each in range(many + 5)]
    app, told = answers(b"".join(posts), then_close=False)

    assert app.bodies == [b"%02d" % each for each in range(many)]
    assert told.count(b"http/1.1 200 ") == many
    assert told.count(b"connection: close") == 1


def test_what_is_sent_behind_a_stream_does_not_disturb_it() -> None:
    """Neither a request nor other bytes are answered within another answer."""

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        stream = GET.replace(b"/x", b"/waiting") + b"\r\n"
        for behind in (GET + b"\r\n", b"\0garbage", SOCKET + b"\r\n", b"GET /half"):
            before, client = app.ended, await connect()
            await client.ask(stream)
            client.writer.write(behind)
            await asyncio.sleep(SHORT_S)
            client.writer.write_eof()
            assert b"HTTP/1.1" not in await client.rest()
            await until(partial(app.has_ended, before + 1))

    play(scene)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET, GET + b"x", b"\r\n", SOCKET])
def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    """The second request of a connection has a deadline from its first byte, too."""
    quick = RequestLimits(100, SHORT_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        first = await connect()
        first.writer.write(sent)
        told = await first.rest()
        assert told == b"" or told.startswith(b"HTTP/1.1 408 ")
        while sent.strip():
            later = await connect()
            with contextlib.suppress(asyncio.IncompleteReadError):  # this machine was too slow
                await later.ask(GET + b"\r\n")
                await later.reader.readexactly(len(b"hello"))
                break
        if sent.strip():
            later.writer.write(sent)
            assert (await later.rest()).startswith(b"HTTP/1.1 408 ")

    play(scene, quick)


def test_a_head_that_trickles_is_closed() -> None:
    """The deadline is that of the whole head, not of the next byte."""
    quick = RequestLimits(100, 5 * SHORT_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        told = asyncio.ensure_future(client.rest())
        while not told.done():
            with contextlib.suppress(ConnectionError):
                client.writer.write(b"x")
            await asyncio.sleep(SHORT_S)

    play(scene, quick)


def test_an_unused_connection_is_closed() -> None:
    """Later than one that never sent a request."""
    quick = RequestLimits(100, LONG_S, SHORT_S, LONG_S, LONG_S, LONG_S)
    assert answers(GET + b"\r\n", then_close=False, bounds=quick)[1].endswith(b"hello")


def test_silent_connections_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest one is closed; a connection with an answer in progress never is. This is logged
    once."""
    few = RequestLimits(3, LONG_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        stream = await connect()
        await stream.ask(GET.replace(b"/x", b"/waiting") + b"\r\n")
        silent = await connect()
        half = await connect()
        half.writer.write(GET)
        for _ in range(5):
            client = await connect()
            assert (await client.ask(GET + b"\r\n")).startswith(b"http/1.1 200 ")
            client.writer.close()
        assert await silent.rest() + await half.rest() == b""
        others = [await connect() for _ in range(2)]
        for each in others:
            await each.ask(GET.replace(b"/x", b"/waiting") + b"\r\n")
        assert (await (await connect()).rest()).startswith(b"HTTP/1.1 503 ")
        assert not stream.reader.at_eof()

    play(scene, few)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "LimitNOFILE" in caplog.text


class Connections:
    """A store of connections, each with its last message as its feed; messages are returned."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._feeds: dict[str, str] = {}

    def open(self, connection: Any) -> None:
        self._feeds[connection.id] = ""

    def get(self, connection_id: str) -> Any:
        return SimpleNamespace(feed=self._feeds[connection_id])

    def receive(self, connection_id: str, text: str) -> None:
        self._feeds[connection_id] = text
        self._sockets.send(connection_id, text)

    def remove(self, connection_id: str) -> None:
        del self._feeds[connection_id]


def play_sockets(
    scene: Callable[[Sockets, Callable[[], Awaitable[Client]]], Awaitable[None]],
    bounds: RequestLimits,
) -> None:
    """Play *scene* with the server's own app of WebSockets."""

    async def run() -> None:
        sockets = Sockets(asyncio.get_running_loop())
        connections = Connections(sockets)
        app: Any = SocketApp(
            sockets=sockets,
            connections=connections,  # type: ignore[arg-type]
            receive=connections.receive,
            clock=lambda: 0,
        )
        async with asyncio.timeout(PATIENCE_S), served(app, bounds) as connect:
            await scene(sockets, connect)

    asyncio.run(run())


async def subscribe(client: Client, text: bytes = b"main") -> None:
    """Send *text*, and once more: the second answer proves that the first message was handled."""
    await client.ask(SOCKET + b"\r\n")
    for _ in range(2):
        client.writer.write(b"\x81%c\0\0\0\0" % (0x80 + len(text)) + text)
        assert (await client.reader.readexactly(2 + len(text))).endswith(text)


def test_websockets_without_a_subscription_make_room() -> None:
    """The oldest one is closed, also after a message was refused; a subscribed one never is."""
    few = RequestLimits(3, LONG_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def scene(_: Sockets, connect: Callable[[], Awaitable[Client]]) -> None:
        subscribed = await connect()
        await subscribe(subscribed)
        refused, silent = await connect(), await connect()
        await subscribe(refused, b"")
        await silent.ask(SOCKET + b"\r\n")
        for each in (refused, silent):
            other = await connect()
            await subscribe(other)
            assert await each.rest() == b""
        assert (await (await connect()).rest()).startswith(b"HTTP/1.1 503 ")
        assert not subscribed.reader.at_eof()

    play_sockets(scene, few)


def test_closing_a_websocket_does_not_wait_for_its_client() -> None:
    """The messages that a slow client has not received are discarded."""

    async def scene(sockets: Sockets, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await subscribe(client)
        client.reader.feed_data(b"x" * 4096)  # its transport stops reading
        [connection_id] = sockets._clients
        for _ in range(2):
            sockets.for_replays.send(connection_id, BIG.decode())
        await asyncio.sleep(SHORT_S)
        sockets.close(connection_id)
        await until(lambda: sockets.count == 0)

    play_sockets(scene, PATIENT)


def test_a_websocket_without_a_subscription_is_closed() -> None:
    """It is closed with 1008; a subscribed one stays open."""
    quick = RequestLimits(100, LONG_S, LONG_S, LONG_S, LONG_S, LONG_S, 10 * SHORT_S)

    async def scene(_: Sockets, connect: Callable[[], Awaitable[Client]]) -> None:
        subscribed, silent = await connect(), await connect()
        await subscribe(subscribed)
        await silent.ask(SOCKET + b"\r\n")
        assert (await silent.rest()).startswith(b"\x88'\x03\xf0a client subscribes")
        await asyncio.sleep(10 * SHORT_S)
        assert not subscribed.reader.at_eof()

    play_sockets(scene, quick)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls_handshakes_make_room(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection before the end of its handshake counts: it is evicted, or refused."""
    file = write_authority(tmp_path)
    trust: Any = {"ssl": ssl.create_default_context(cafile=file), "server_hostname": "localhost"}
    few = RequestLimits(3, LONG_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), served(App(), few, tls=file) as connect:
            stream = await connect(**trust)
            await stream.ask(GET.replace(b"/x", b"/waiting") + b"\r\n")
            silent = [await connect() for _ in range(2)]
            for _ in range(3):
                client = await connect(**trust)
                assert (await client.ask(GET + b"\r\n")).startswith(b"http/1.1 200 ")
            assert [await each.rest() for each in silent] == [b"", b""]
            plain = await connect()
            plain.writer.write(GET + b"\r\n")
            assert b"HTTP" not in await plain.rest()
            for _ in range(2):
                client = await connect(**trust)
                assert (await client.ask(SOCKET + b"\r\n")).startswith(b"http/1.1 101 ")
            assert await (await connect()).rest() == b""
            assert not stream.reader.at_eof()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert [each.levelname for each in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x00\xff\x01"])
def test_a_tls_handshake_has_a_deadline(
    new_loop: Callable[[], asyncio.AbstractEventLoop], sent: bytes, tmp_path: Path
) -> None:
    """A silent client is disconnected, as is one that stops within its first message."""
    quick = RequestLimits(100, SHORT_S, LONG_S, LONG_S, LONG_S, LONG_S)

    async def run() -> None:
        file = write_authority(tmp_path)
        async with asyncio.timeout(PATIENCE_S), served(App(), quick, tls=file) as connect:
            client = await connect()
            client.writer.write(sent)
            assert await client.rest() == b""

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_the_limit_leaves_files_for_everything_else() -> None:
    """This holds even if a process may open few files."""
    assert connections_within(65_536) == 65_536 - limits.FILES_RESERVED
    assert connections_within(256) == 192
    assert connections_within(1) == 1


@pytest.mark.parametrize("path", [b"/big", b"/endless"])
@pytest.mark.parametrize("scheme", ["http", "websocket"])
def test_a_client_that_reads_nothing_is_cut(path: bytes, scheme: str) -> None:
    """An answer of a known length as well as a stream and a WebSocket."""
    quick = RequestLimits(100, LONG_S, LONG_S, SHORT_S, LONG_S, LONG_S)

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        if scheme == "http":
            client.writer.write(GET.replace(b"/x", path) + b"\r\n")
        else:
            await client.ask(SOCKET + b"\r\n")
            client.writer.write(b"\x81\x85\0\0\0\0flood")
        await until(lambda: app.scopes)
        client.reader.feed_data(b"x" * 4096)  # its transport stops reading
        await until(lambda: app.ended)

    play(scene, quick)


def test_the_kernel_discards_what_a_cut_client_has_not_read() -> None:
    """It would keep megabytes for each such client, and send them for minutes."""

    async def scene() -> bytes:
        ends = socket.socketpair()
        quick = RequestLimits(100, LONG_S, LONG_S, SHORT_S, LONG_S, LONG_S)
        transport: Any = SimpleNamespace(
            abort=ends[0].close,
            pause_reading=None,
            resume_reading=None,
            get_extra_info=lambda _: ends[0],
            get_write_buffer_size=lambda: 1,
        )
        connection = ClosingTransport(transport, Admission(quick), lambda: False)
        with ends[1]:
            duplicate = ends[0].dup()
            connection.on_full()
            await until(lambda: ends[0].fileno() < 0)
            with duplicate:
                return duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)

    assert asyncio.run(scene()) == struct.pack("ii", 1, 0)


def test_a_client_that_reads_slowly_is_not_cut() -> None:
    """The deadline starts again with each byte that is taken."""

    class Transport(asyncio.Transport):
        left, is_aborted = 10, False

        def get_write_buffer_size(self) -> int:
            self.left = max(0, self.left - 1)
            return self.left

        def abort(self) -> None:
            self.is_aborted = True

    async def run() -> None:
        transport = Transport()
        bounds = RequestLimits(1, LONG_S, LONG_S, 0.001)
        ClosingTransport(transport, Admission(bounds), lambda: False).on_full()
        await until(lambda: transport.is_aborted)
        assert transport.left == 0

    asyncio.run(run())


def test_the_last_wait_of_a_connection_decides_its_deadline() -> None:
    """One timer serves many requests: if the deadline was moved, the timer is set again."""

    class Loop:
        now_s = 0.0

        def __init__(self) -> None:
            self.timers: list[tuple[float, Callable[[], None]]] = []

        def time(self) -> float:
            return self.now_s

        def call_at(self, at_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
            self.timers.append((at_s, call))
            return asyncio.TimerHandle(at_s, call, (), asyncio.get_running_loop())

    async def run() -> None:
        connection = ClosingTransport(asyncio.Transport(), Admission(PATIENT), lambda: False)
        loop, ended = Loop(), list[str]()
        connection._loop = loop  # type: ignore[assignment]
        connection.wait(10, lambda: ended.append("first"))
        connection.stop_waiting()
        loop.now_s = 5
        connection.wait(10, lambda: ended.append("second"))
        ((at_s, fire),) = loop.timers
        assert at_s == 10
        fire()
        at_s, fire = loop.timers[-1]
        assert (at_s, ended) == (15, [])
        fire()
        assert ended == ["second"]
        connection.wait(10, lambda: ended.append("third"))
        connection.wait(1, lambda: ended.append("fourth"))
        at_s, fire = loop.timers[-1]
        connection.stop_waiting()
        fire()
        assert (at_s, ended) == (6, ["second"])

    asyncio.run(run())


def test_closing_does_not_wait_for_a_client() -> None:
    """The rest of a complete answer is dropped too, also when the server ends."""
    quick = RequestLimits(100, LONG_S, LONG_S, LONG_S, SHORT_S, LONG_S)

    async def run() -> None:
        app = App()
        async with asyncio.timeout(PATIENCE_S):
            async with served(app) as connect:
                client = await connect()
                client.writer.write(GET.replace(b"/x", b"/endless") + b"\r\n")
                await until(lambda: app.scopes)
            async with served(app, quick) as connect:
                client = await connect()
                client.writer.write(GET.replace(b"/x", b"/big") + b"Connection: close\r\n\r\n")
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await asyncio.sleep(10 * SHORT_S)
                    await client.reader.readexactly(len(BIG))

    asyncio.run(run())


def test_a_client_that_still_sends_reads_its_refusal() -> None:
    """The rest of its body is discarded; then the connection is closed, not reset."""

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        size = 4 * 1024 * 1024
        client = await connect()
        head = POST.replace(b"/x", b"/refused") + b"Content-Length: %d\r\n\r\n" % size
        client.writer.write(head + b"a" * size)
        await client.writer.drain()
        told = (await client.rest()).lower()
        assert told.startswith(b"http/1.1 401 ")
        assert b"connection: close" in told

    play(scene)


def test_the_rest_of_a_refused_body_is_bounded() -> None:
    """In time, and in bytes."""
    quick = RequestLimits(100, LONG_S, LONG_S, LONG_S, LONG_S, SHORT_S)
    head = POST.replace(b"/x", b"/refused") + b"Transfer-Encoding: chunked\r\n\r\n"
    assert b" 401 " in answers(head + b"1\r\na\r\n", then_close=False, bounds=quick)[1]

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(head)
        with pytest.raises(ConnectionError):
            while True:
                client.writer.write(b"10000\r\n" + b"a" * 65536 + b"\r\n")
                await client.writer.drain()

    play(scene)


def test_a_body_is_asked_for_only_when_it_is_read() -> None:
    """`Expect: 100-continue`: a refusal comes without the 100, HTTP/1.0 never gets one."""
    expects = b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        assert (await client.ask(POST + expects)).startswith(b"http/1.1 100 ")
        assert (await client.ask(b"ab")).startswith(b"http/1.1 200 ")
        refused = POST.replace(b"/x", b"/refused")
        assert (await (await connect()).ask(refused + expects)).startswith(b"http/1.1 401 ")
        old = POST.replace(b"HTTP/1.1", b"HTTP/1.0")
        assert (await (await connect()).ask(old + expects + b"ab")).startswith(b"http/1.1 200 ")

    play(scene)


def test_another_upgrade_is_ignored() -> None:
    """curl requests HTTP/2 in this way: the request is answered, with its body."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    app, told = answers(POST + upgrade + b"Content-Length: 2\r\n\r\nab" + END, then_close=False)

    assert b"\r\n\r\nabhttp/1.1 200 " in told
    assert app.bodies == [b"ab", b""]
    assert answers(GET + upgrade + b"\r\n" + END, then_close=False)[1].count(b"hello") == 2


def test_an_unfinished_answer_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """It has no end mark that would make it look complete."""
    _, told = answers(GET.replace(b"/x", b"/unfinished") + b"\r\n", then_close=False)

    assert told.endswith(b"begun\r\n")
    assert caplog.records == []


def test_whatever_a_client_sends_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """Handshakes that are refused or break rules, and frames of every wrong kind."""
    caplog.set_level(logging.INFO)
    key = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    handshakes = [
        SOCKET.replace(b"/ws", b"/other"),
        SOCKET.replace(key, b""),
        SOCKET.replace(b"AAAA", b"A"),
        SOCKET.replace(b"Version: 13", b"Version: 99"),
        SOCKET.replace(b"GET", b"POST") + b"Content-Length: 1\r\n",
        SOCKET + b"x-long: " + b"a" * 20_000 + b"\r\n",
        SOCKET + b"x: y\r\n" * 200,
        SOCKET + b"x: \xff\r\n",
        SOCKET + b"Sec-WebSocket-Extensions: ;;;\r\n",
        SOCKET + b"Sec-WebSocket-Protocol: ,,\r\n",
        SOCKET + b"Origin: \r\n",
        SOCKET.replace(b"/ws", b"http://h/ws"),
        SOCKET.replace(b"/ws", b"/ws%ff%00?%ff"),
        b"GET /ws HTTP/1.0\r\n" + SOCKET.partition(b"\r\n")[2],
    ]
    mask = b"\0\0\0\0"
    frames = [
        b"\x81\x82" + mask + b"\xff\xfe",  # not UTF-8
        b"\x01\x81" + mask + b"\xff" + b"\x80\x81" + mask + b"\xff",  # in two fragments
        b"\x83\x80" + mask,  # unknown opcodes
        b"\x8b\x80" + mask,
        b"\xf1\x80" + mask,  # reserved bits
        b"\x81\x01a",  # not masked
        b"\x80\x80" + mask,  # a continuation of nothing
        b"\x01\x80" + mask + b"\x01\x80" + mask,  # a message within another one
        b"\x09\x80" + mask,  # a ping in fragments
        b"\x89\xfe\x00\xff" + mask,  # a ping that is too long
        b"\x81\xff\x7f" + b"\xff" * 7 + mask,  # a message that is too long
        b"\x88\x81" + mask + b"a",  # a close frame of one byte
        b"\x88\x82" + mask + b"\x00\x01",  # with an invalid code
        b"\x88\x83" + mask + b"\x03\xe8\xff",  # with a reason that is not UTF-8
        b"\x82\x81" + mask + b"a",  # binary
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ]
    quick = RequestLimits(100, SHORT_S, LONG_S, LONG_S, LONG_S, SHORT_S)

    async def scene(app: App, connect: Callable[[], Awaitable[Client]]) -> None:
        for handshake in handshakes:
            client = await connect()
            assert (await client.ask(handshake + b"\r\n")).startswith(b"http/1.1 ")
            client.writer.close()
        for frame in frames:
            client = await connect()
            assert (await client.ask(SOCKET + b"\r\n")).startswith(b"http/1.1 101 ")
            client.writer.write(frame)
            client.writer.write_eof()
            await client.rest()
        await until(lambda: app.ended == len(app.scopes))

    play(scene, quick)
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


def test_the_oldest_idle_connection_goes_first() -> None:
    """One that got a request is not idle."""

    class Idle:
        evicted = False

        def abort(self) -> None:
            self.evicted = True

    async def run() -> None:
        admission = Admission(RequestLimits(2))
        idle: list[Any] = [Idle() for _ in range(3)]
        for each in idle:
            admission.add_idle(each.abort)
        admission.remove_idle(idle[0].abort)
        assert admission.admit(1)
        assert admission.admit(2)
        assert [each.evicted for each in idle] == [False, True, False]
        assert admission.admit(2)
        assert not admission.admit(2)

    asyncio.run(run())
