"""The public port: one ASGI app for the HTTP API and the WebSocket API, under uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from tidings.core.errors import Rejected
from tidings.local.gateway import asgi, http_events
from tidings.local.gateway.http_gateway import HttpGateway
from tidings.local.gateway.socket_gateway import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SocketGateway
from tidings.server.sockets import refuse
from tidings.server.visitors import Visitors
from tidings.web.asgi import Message, Receive, Send

GRACE_S = 1  # for requests in flight when the twin ends; event streams never end by themselves
STARTED_EVERY_S = 0.005


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the twin, which has more to end than this server."""
        yield


@contextlib.asynccontextmanager
async def serving(
    http: HttpGateway, sockets: SocketGateway, listener: socket.socket, allowed: Visitors
) -> AsyncIterator[None]:
    """Serve both on *listener* to who is *allowed* while the context is open."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            allowed.check(scope)
        except Rejected as error:
            await _refuse(scope, receive, send, error)
            return
        gateway = sockets.serve if scope["type"] == "websocket" else http.serve
        await gateway(scope, receive, send)

    server = _Server(_config(app))
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(STARTED_EVERY_S)
        yield
    finally:
        await sockets.stop()
        server.should_exit = True
        await task


def _config(app: Any) -> uvicorn.Config:
    # The server hands the pair to websockets, which tells messages from frames.
    size_max: Any = (MESSAGE_BYTES_MAX, FRAME_BYTES_MAX)
    return uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=size_max,
        # API Gateway sends no pings; a client that is slow to answer is not cut for it.
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


async def _refuse(scope: Message, receive: Receive, send: Send, error: Rejected) -> None:
    """Answer a request or a handshake with *error*."""
    refusal = http_events.refusal(error)
    if scope["type"] == "websocket":
        await receive()
        await refuse(send, refusal.status, refusal.body.decode())
    else:
        await asgi.respond(send, refusal)
