"""One connection over WebSocket, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from tidings.client.errors import Lost
from tidings.client.events import Event, Moved
from tidings.client.subscription import Subscription
from tidings.client.transport.websocket import (
    OPTIONS,
    PING,
    Reader,
    Timing,
    Watch,
    failures,
    goodbye,
    subscribe_message,
)
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed


async def listen(
    url: str, cursor: str, wanted: Subscription, timing: Timing | None = None
) -> AsyncGenerator[Event | Moved, None]:
    """As `websocket.listen`, without blocking."""
    async with AsyncExitStack() as stack:
        with failures(url):
            socket = await stack.enter_async_context(connect(url, **OPTIONS))
        try:
            await socket.send(subscribe_message(cursor, wanted))
            watch = Watch(timing or Timing(), time.monotonic())
            reader = Reader(watch, cursor)
            while True:
                for sign in reader.signs(await _message(socket, watch)):
                    yield sign
        except ConnectionClosed as closed:
            raise Lost(goodbye(closed)) from None


async def _message(socket: ClientConnection, watch: Watch) -> str | bytes:
    """The next message; pings whenever one is due before it comes."""
    while True:
        now_s = time.monotonic()
        watch.check(now_s)
        if watch.ping_is_due(now_s):
            await socket.send(PING)
            watch.pinged(now_s)
        try:
            async with asyncio.timeout(watch.wait_s(now_s)):
                return await socket.recv()
        except TimeoutError:
            continue
