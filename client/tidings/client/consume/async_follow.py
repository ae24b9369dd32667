"""The loop of `follow` for asyncio: the same course over transports that do not block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from tidings.client.address import operations_url, socket_url
from tidings.client.consume.follow import Course, Transport
from tidings.client.errors import Lost
from tidings.client.events import Event, Moved
from tidings.client.subscription import Subscription


class Listen(Protocol):
    """One connection from a cursor on; ends by raising."""

    def __call__(self, cursor: str) -> AsyncGenerator[Event | Moved, None]: ...


async def resume(
    listen: Listen, cursor: str, *, on_lost: Callable[[Lost, float], None]
) -> AsyncGenerator[Event | Moved, None]:
    """
    What *listen* brings from *cursor* on, connected again for ever, repetitions left out.

    Raises:
        Refused: the server will not answer otherwise.
    """
    course = Course(cursor)
    while True:
        course.opens()
        try:
            async with aclosing(listen(course.cursor)) as signs:
                async for sign in signs:
                    if isinstance(sign, Moved):
                        course.moves(sign)
                        yield sign
                    elif course.takes(sign):
                        yield sign
        except Lost as lost:
            delay_s = course.loses(lost)
            if delay_s:
                on_lost(lost, delay_s)
                await asyncio.sleep(delay_s)


def listener(transport: Transport, url: str, ws_url: str | None, wanted: Subscription) -> Listen:
    """
    One transport to the feed at *url*; the other one is not imported.

    Raises:
        WrongUrl: *url* or *ws_url* is no address.
    """
    if transport == "sse":
        from tidings.client.transport import async_sse

        address = operations_url(url, wanted.feed)
        return lambda cursor: async_sse.listen(address, cursor, wanted)
    from tidings.client.transport import async_websocket

    address = socket_url(url, ws_url)
    return lambda cursor: async_websocket.listen(address, cursor, wanted)
