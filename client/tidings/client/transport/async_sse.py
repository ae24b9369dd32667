"""One connection over Server-Sent Events, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
from tidings.client.errors import Ended
from tidings.client.events import Event, Moved
from tidings.client.subscription import Subscription
from tidings.client.tls import trusted
from tidings.client.transport.sse import Connection, failures


async def listen(
    url: str, cursor: str, wanted: Subscription
) -> AsyncGenerator[Event | Moved, None]:
    """As `sse.listen`, without blocking."""
    connection = Connection(cursor, wanted)
    with failures(url):
        async with (
            httpx.AsyncClient(verify=trusted()) as client,
            client.stream("GET", url, **connection.request()) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                await answer.aread()  # the reason, which the error tells
            for moved in connection.opened(answer):
                yield moved
            async for chunk in answer.aiter_bytes():
                for sign in connection.feed(chunk):
                    yield sign
    raise Ended
