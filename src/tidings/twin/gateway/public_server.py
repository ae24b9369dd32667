"""The public port: one ASGI app for the HTTP API and the WebSocket API, under uvicorn."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

from tidings.core.errors import Rejected
from tidings.http.asgi import Message, Receive, Send
from tidings.server import http_server
from tidings.server.proxies import KnownProxies
from tidings.server.sockets import refuse
from tidings.server.visitors import Visitors
from tidings.twin.gateway import asgi, http_events
from tidings.twin.gateway.http_gateway import HttpGateway
from tidings.twin.gateway.socket_gateway import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SocketGateway

GRACE_S = 1  # for requests in flight when the twin stops; event streams never end by themselves


@contextlib.asynccontextmanager
async def serving(
    http: HttpGateway, sockets: SocketGateway, listener: socket.socket, allowed: Visitors
) -> AsyncIterator[None]:
    """Serve both APIs on *listener* to *allowed* visitors while the context is open."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            allowed.check(scope)
        except Rejected as error:
            await _refuse(scope, receive, send, error)
            return
        gateway = sockets.serve if scope["type"] == "websocket" else http.serve
        await gateway(scope, receive, send)

    # Uvicorn passes the pair to websockets, which limits messages and frames separately.
    size_max = MESSAGE_BYTES_MAX, FRAME_BYTES_MAX
    async with http_server.serving(
        KnownProxies(app, (), every=False),  # clients connect without a proxy
        listener,
        grace_s=GRACE_S,
        ws_max_size=size_max,
        # API Gateway sends no pings; a client that is slow to answer is not disconnected.
        ws_ping_interval=None,
        ws_per_message_deflate=False,
    ):
        try:
            yield
        finally:
            await sockets.stop()


async def _refuse(scope: Message, receive: Receive, send: Send, error: Rejected) -> None:
    """Answer a request or a handshake with *error*."""
    refusal = http_events.refusal(error)
    if scope["type"] == "websocket":
        await receive()
        await refuse(send, refusal.status, refusal.body.decode())
    else:
        await asgi.respond(send, refusal)
