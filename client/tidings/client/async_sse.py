"""One connection over Server-Sent Events, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx

from .errors import Ended
from .events import Event, Moved
from .sse import Connection, failures
from .subscription import Subscription
from .tls import trusted


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
