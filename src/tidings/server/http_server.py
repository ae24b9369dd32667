"""Serve an ASGI app on a listening socket, for the server and the agent.

This module also checks the host and the origin of each request, and whether a request comes from a
trusted proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import ServerState

from tidings.core.auth.origins import RepeatedHeader, check_host, check_page
from tidings.core.errors import InvalidKey
from tidings.http.asgi import Message, headers_of
from tidings.server.http_protocol import (
    Admission,
    HttpProtocol,
    RequestLimits,
    connections_within,
    raise_file_limit,
)
from tidings.server.meters import Meters
from tidings.server.processes import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidings.http.asgi import App, Receive, Send
    from tidings.server.posts import Posts

KNOWN_MAX = 64  # maximum number of cached hosts; a client could send any number of them
Network = IPv4Network | IPv6Network
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-host", b"x-forwarded-proto"})
BACKLOG = 2048  # connections that the kernel queues before the loop accepts them
FLUSH_S = 0.5  # time to send the last answers when the server stops
DATE_EVERY_S = 1.0  # time between two updates of the Date field
POLL_S = 0.02  # time between two checks whether all connections are closed
# Maximum number of connections accepted in one turn of the event loop. Evicted connections free
# their descriptors between two turns.
ACCEPTED_MAX = 16
ACCEPT_PAUSE_S = 1.0  # pause after the system has refused a file descriptor, the same as asyncio's

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """A check of the host and the origin of requests.

    *hosts* are the names of the server. *origins* are the origins of pages that may access it. A
    stage leaves it to the browser to restrict pages, by the CORS headers of its answers. A server
    refuses the request of a foreign page before it handles the request, because an open feed may be
    meant for this machine alone.
    """

    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    _known: set[str] = field(default_factory=set)  # hosts that passed the check before

    def check(self, scope: Message) -> dict[str, str]:
        """Return the headers of the request.

        Raises:
            RepeatedHeader: the request has two credentials.
            UnknownHost, ForeignOrigin: see `check_host` and `check_page`.
            InvalidKey: `Idempotency-Key` is repeated, so it is unclear which key counts.
        """
        headers = headers_of(scope)
        if len(headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            if names.count(b"idempotency-key") > 1:
                raise InvalidKey("must be given once", field="Idempotency-Key")
            if names.count(b"authorization") > 1:
                raise RepeatedHeader("must be sent at most once", field="Authorization")
        host = headers.get("host", "")
        if host not in self._known:
            check_host(headers, self.hosts)
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)
        if scope.get("method") != "OPTIONS":  # every CORS preflight request gets an answer
            check_page(headers, self.origins)
        return headers


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks that *texts* name; an address is a network of one address.

    Raises:
        Problem: one of *texts* is not an IP address or network.
    """
    try:
        return tuple(ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise Problem(f"--proxy: {error}") from None


class KnownProxies:
    """A filter that removes forwarding headers from the requests of untrusted clients.

    With `Forwarded` or a similar header, a client determines the host of the links in the answer.
    The headers are kept if the request comes from one of *proxies*, or if *every* client is a
    proxy, as at a Unix socket. Requests are passed on to *app*.
    """

    def __init__(self, app: App, proxies: Sequence[Network], *, every: bool) -> None:
        self._app, self._proxies, self._every = app, proxies, every

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_known(scope):
            headers = [pair for pair in scope["headers"] if pair[0] not in _FORWARDED]
            if scope["scheme"] == "https":
                headers.append((b"x-forwarded-proto", b"https"))
            if headers != scope["headers"]:
                scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)

    def _is_known(self, scope: Message) -> bool:
        if self._every or not self._proxies:
            return self._every
        client = scope.get("client")
        if not client:
            return False
        address = ip_address(client[0])
        # At `--host ::`, the address of an IPv4 client is `::ffff:` and its address.
        forms = {address, getattr(address, "ipv4_mapped", None) or address}
        return any(form in each for form in forms for each in self._proxies)


class TlsServer:
    """A TLS server on *listener*, which admits each connection before its handshake.

    So connections count while their handshake lasts. A refused connection is closed without an
    answer, because an answer would require the handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        admission: Admission,
        state: ServerState,
        protocol: Callable[..., asyncio.Protocol],
    ) -> None:
        self._listener, self._admission, self._state = listener, admission, state
        self.context = context
        self._begin = partial(_Handshake, admission, state, protocol)
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # such as no free file descriptor
                log.warning("no connections are accepted for %g s: %s", ACCEPT_PAUSE_S, error)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._resume)
                return
            if self._admission.admit(len(self._state.connections)):
                self._begin(self.context, connection)
            else:
                connection.close()


class _Handshake:
    """A connection in its TLS handshake; *protocol* serves it afterwards."""

    def __init__(
        self,
        admission: Admission,
        state: ServerState,
        protocol: Callable[..., asyncio.Protocol],
        context: ssl.SSLContext,
        connection: socket.socket,
    ) -> None:
        self._context, self._admission, self._state = context, admission, state
        self._protocol = partial(protocol, is_admitted=True)
        self.transport = self  # the function `_end` calls *finish* and *abort* of the transport
        connection.setblocking(False)
        self._task = asyncio.ensure_future(self._run(connection))
        state.tasks.add(self._task)
        self._task.add_done_callback(partial(self._end, connection))
        state.connections.add(self)  # type: ignore[arg-type]
        admission.add_idle(self.abort)

    def abort(self) -> None:
        self._task.cancel()

    finish = abort

    def shutdown(self) -> None:
        """Wait for the handshake and its request, as for other new connections."""

    async def _run(self, connection: socket.socket) -> None:
        seconds = self._admission.bounds.head_s
        with contextlib.suppress(OSError):  # the client does not use TLS, is too slow, or has left
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=seconds
            )

    def _end(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # the task may not have begun, so the connection is closed here
            connection.close()
        self._admission.remove_idle(self.abort)
        self._state.tasks.discard(task)
        self._state.connections.discard(self)


@contextlib.asynccontextmanager
async def serving(
    app: Any,
    *listeners: socket.socket,
    grace_s: float,
    bounds: RequestLimits | None = None,
    meters: Meters | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    posts: Posts | None = None,
    **websockets: Any,
) -> AsyncIterator[Callable[[], None]]:
    """Serve *app* on *listeners* while the context is open.

    On exit, requests in flight have *grace_s* seconds to end. *bounds* are the limits of requests
    and connections. *meters* counts requests and bytes. *posts* accepts ordinary posts.
    *websockets* are uvicorn's options of WebSockets; without any, WebSockets are refused. Yield a
    function that loads the certificate again.
    """
    config = _config(app, tls_cert, tls_key, websockets)
    files = raise_file_limit()
    state, meters = ServerState(), meters or Meters()
    meters.connections = state.connections
    bounds = bounds or RequestLimits(connections_within(files))
    admission = Admission(bounds, meters)
    _set_date(state)
    protocol: Callable[..., asyncio.Protocol] = partial(
        HttpProtocol,
        admission=admission,
        posts=posts,
        config=config,
        server_state=state,
        app_state={},
    )
    servers: list[asyncio.Server | TlsServer] = []
    for listener in listeners:
        _reset_unreachable(listener, bounds.stall_s)
        if config.ssl is None:
            loop = asyncio.get_running_loop()
            servers.append(await loop.create_server(protocol, sock=listener, backlog=BACKLOG))
        else:
            servers.append(TlsServer(listener, config.ssl, admission, state, protocol))
    dates = asyncio.ensure_future(_keep_date(state))

    try:
        yield partial(_renew, servers, app, tls_cert, tls_key, websockets)
    finally:
        dates.cancel()
        for server in servers:
            server.close()
        admission.is_ending = True
        await asyncio.sleep(0)  # receive what has arrived for the connections that are closed now
        await _end(state, grace_s)


def _reset_unreachable(listener: socket.socket, stall_s: float) -> None:
    """Make the kernel reset connections to *listener* whose client does not answer for *stall_s*.

    The accepted sockets inherit the options. The kernel counts from the first unacknowledged byte.
    On an idle connection, it sends probes after half of the time, and counts from the last segment
    of the client. A system without TCP_USER_TIMEOUT counts unanswered probes instead.
    """
    if listener.family == socket.AF_UNIX:
        return
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_s, probe_s = max(1, round(stall_s / 2)), max(1, round(stall_s / 10))
    options = {
        "TCP_USER_TIMEOUT": round(stall_s * 1000),
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPINTVL": probe_s,
        "TCP_KEEPCNT": max(1, round((stall_s - idle_s) / probe_s)),
    }
    for name, value in options.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _renew(
    servers: Iterable[object],
    app: Any,
    tls_cert: Path | None,
    tls_key: Path | None,
    websockets: dict[str, Any],
) -> None:
    """Use the current content of the files of the certificate for new connections."""
    if tls_cert is None or tls_key is None:
        return
    check_certificate(tls_cert, tls_key)
    context = _config(app, tls_cert, tls_key, websockets).ssl
    for server in servers:
        if isinstance(server, TlsServer) and context is not None:
            server.context = context


def _config(
    app: Any, tls_cert: Path | None, tls_key: Path | None, websockets: dict[str, Any]
) -> uvicorn.Config:
    ws: Any = "none"
    if websockets:
        from tidings.server.socket_protocol import SocketProtocol  # the agent does not need it

        ws = SocketProtocol
    config = uvicorn.Config(
        app,
        ws=ws,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # uvicorn would set the client and the scheme, which the app ignores
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        **websockets,
    )
    config.load()
    return config


def check_certificate(cert: Path, key: Path) -> None:
    """Check that *cert* has a chain of certificates and *key* the private key of the first one.

    Raises:
        Problem: a file cannot be read, or has something else.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    rule = f"--tls-cert {cert} must have a chain of certificates as PEM"
    try:
        context.load_verify_locations(cert)
        rule = f"--tls-key {key} must have the private key of {cert} as PEM, without a passphrase"
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        raise Problem(f"{rule} ({getattr(error, 'reason', None) or error.strerror})") from None


def _set_date(state: ServerState) -> None:
    state.default_headers = [(b"date", formatdate(usegmt=True).encode())]


async def _keep_date(state: ServerState) -> None:
    while True:
        await asyncio.sleep(DATE_EVERY_S)
        _set_date(state)


async def _end(state: ServerState, grace_s: float) -> None:
    """Close connections when their requests have ended, and after *grace_s* close all others."""
    for connection in list(state.connections):
        connection.shutdown()
    await _until_empty((state.tasks, state.connections), grace_s)
    left: list[Any] = list(state.connections)
    for connection in left:
        connection.transport.finish()
    await _until_empty((state.connections,), FLUSH_S)
    for connection in list(state.connections):
        connection.transport.abort()
    await _until_empty((state.tasks,), FLUSH_S)
    tasks = list(state.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _until_empty(sets: Iterable[set[Any]], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while any(sets):
                await asyncio.sleep(POLL_S)
