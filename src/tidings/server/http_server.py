"""Serve an ASGI app on a listening socket; used by the server, the twin and the agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import ServerState

from tidings.server.connections import Admission, Bounds, connections_within, raise_file_limit
from tidings.server.http_protocol import HttpProtocol

if TYPE_CHECKING:
    import socket
    from pathlib import Path

BACKLOG = 2048  # connections that the kernel queues before the loop accepts them
FLUSH_S = 0.5  # to flush the last answers when the server stops
DATE_EVERY_S = 1.0  # the precision of the Date field
POLL_S = 0.02


@contextlib.asynccontextmanager
async def serving(
    app: Any,
    listener: socket.socket,
    *,
    grace_s: float,
    bounds: Bounds | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    **websockets: Any,
) -> AsyncIterator[None]:
    """
    Serve *app* on *listener* while the context is open.

    On exit, requests in flight get *grace_s* seconds. *websockets* are options of uvicorn;
    without any, WebSockets are refused.
    """
    config = _config(app, tls_cert, tls_key, websockets)
    files = raise_file_limit()
    if bounds is None:  # a TLS handshake uses a file descriptor before it counts as a connection
        bounds = Bounds(connections_within(files // 2 if tls_cert else files))
    state = ServerState()
    _set_date(state)
    protocol = partial(
        HttpProtocol,
        admission=Admission(bounds),
        config=config,
        server_state=state,
        app_state={},
    )
    tls: dict[str, Any] = {}
    if config.ssl is not None:
        tls = {"ssl": config.ssl, "ssl_handshake_timeout": bounds.head_s}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, sock=listener, backlog=BACKLOG, **tls)
    dates = asyncio.ensure_future(_keep_date(state))
    try:
        yield
    finally:
        dates.cancel()
        server.close()
        await _end(state, grace_s)


def _config(
    app: Any, tls_cert: Path | None, tls_key: Path | None, websockets: dict[str, Any]
) -> uvicorn.Config:
    ws: Any = "none"
    if websockets:
        from tidings.server.socket_protocol import SocketProtocol  # the agent has none

        ws = SocketProtocol
    config = uvicorn.Config(
        app,
        ws=ws,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # they set values that the app does not read: address, scheme
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        **websockets,
    )
    config.load()
    return config


def _set_date(state: ServerState) -> None:
    state.default_headers = [(b"date", formatdate(usegmt=True).encode())]


async def _keep_date(state: ServerState) -> None:
    while True:
        await asyncio.sleep(DATE_EVERY_S)
        _set_date(state)


async def _end(state: ServerState, grace_s: float) -> None:
    """Close every connection: in order within *grace_s*, then without waiting for clients."""
    for connection in list(state.connections):
        connection.shutdown()
    await _until_empty((state.tasks, state.connections), grace_s)
    left: list[Any] = list(state.connections)  # each has a transport of `connections`
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
