"""Follow a feed without end: connect, yield events, and reconnect from the last handled event.

`ResumeState` decides where and when to reconnect. `resume` and `resume_async` apply these decisions
to a transport, blocking and with asyncio.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import Literal, Unpack

from tidings.client.address import Subscription, Switches, operations_url, socket_url
from tidings.client.errors import Ended, Lost
from tidings.client.events import Event, Moved
from tidings.client.retries import Backoff, is_over, log_lost
from tidings.core.model.cursors import Place, parse_cursor

# A function that opens a connection at a cursor and yields its items. When the connection ends, the
# function raises an error.
Listen = Callable[[str], Generator[Event | Moved, None, None]]
ListenAsync = Callable[[str], AsyncGenerator[Event | Moved, None]]
Transport = Literal["ws", "sse"]
STEADY_S = 60.0  # a connection that lasted this long resets the backoff, even without an event


def follow(
    url: str,
    *,
    transport: Transport = "ws",
    cursor: str = "now",
    feed: str = "main",
    types: Sequence[str] = (),
    parents: Sequence[str] = (),
    ids: Sequence[str] = (),
    password: str = "",
    ws_url: str | None = None,
    on_moved: Callable[[str], None] = lambda cursor: None,
    on_lost: Callable[[Lost, float], None] = log_lost,
    wait: Callable[[float], None] = time.sleep,
    **switches: Unpack[Switches],
) -> Iterator[Event]:
    """Yield the events of *feed* after *cursor*, without end.

    An event counts as handled when the next event is requested. After a failure, `follow` resumes
    from the last handled event and skips repeated events. To resume later, store `event.id`, and
    the cursors that *on_moved* receives while no event matches the filter. *on_lost* receives each
    failure and the seconds until the next attempt. If the server ends a stream as planned after at
    least a minute, this is not a failure, and `follow` resumes at once.

    No event is missed between two attempts, even with the cursor `now`, because both transports
    send the cursor at which they start.

    Raises:
        AccessDenied: the password is wrong.
        Refused: the server gave a final answer.
        WrongUrl: *url* or *ws_url* is not a valid address.
    """
    wanted = Subscription(
        feed=feed,
        types=types,
        parents=parents,
        ids=ids,
        password=password,
        **switches,
    )
    listen, _ = listeners(transport, url, ws_url, wanted)
    return resume(listen, cursor, on_moved=on_moved, on_lost=on_lost, wait=wait)


class ResumeState:
    """What outlives a connection: the cursor, the last handled operation, and the backoff.

    Operations at or before the last handled operation are repetitions (PROTOCOL 6.4). Rows of a
    copy have no place in the log, and their pages may arrive in any order. The log that follows the
    rows may be another log (PROTOCOL 5.6). So rows, `reset` and `live` clear the place of the last
    operation.
    """

    def __init__(self, cursor: str, timeout_s: float | None = None) -> None:
        self.cursor = cursor
        self._timeout_s = timeout_s
        self._last = _place(cursor)
        self._backoff = Backoff()
        self._opened_s = 0.0
        self._without_s = math.inf  # the time since when no attempt was successful

    def opens(self) -> str:
        """Record that a connection is opened, and return the cursor at which it has to start."""
        self._opened_s = time.monotonic()
        self._without_s = min(self._without_s, self._opened_s)
        return self.cursor

    def accepts(self, item: Event | Moved) -> bool:
        """Return False for a repeated event. An event counts as handled when the next is read."""
        self._without_s = math.inf
        if isinstance(item, Moved):
            self.cursor = item.cursor
            self._last = _place(item.cursor)
            return True
        self._backoff.reset()
        place = _place(item.id) if item.is_operation else None
        if place is not None and self._last is not None and place <= self._last:
            return False
        self._last = place
        self.cursor = item.id or self.cursor
        return True

    def delay_s(self, lost: Lost) -> float:
        """Return the seconds until the next attempt; 0 if the server ended a long connection.

        Raises:
            Lost: nothing was received for *timeout_s*, or would be until the next attempt.
        """
        if time.monotonic() - self._opened_s >= STEADY_S:
            self._backoff.reset()
            if isinstance(lost, Ended):
                return 0.0
        delay_s = max(self._backoff.next_s(), lost.after_s)
        if is_over(min(self._without_s, time.monotonic()), delay_s, self._timeout_s):
            raise lost
        return delay_s


def _place(text: str) -> tuple[int, int] | None:
    """Return the page of *text* and the slot in the page; None for a cursor that has no place."""
    cursor = parse_cursor(text)
    return (cursor.page, cursor.slot) if isinstance(cursor, Place) else None


def resume(
    listen: Listen,
    cursor: str,
    *,
    on_moved: Callable[[str], None],
    on_lost: Callable[[Lost, float], None],
    wait: Callable[[float], None],
) -> Iterator[Event]:
    """Yield events as `follow` does, from the connections that *listen* opens."""
    state = ResumeState(cursor)
    while True:
        try:
            with closing(listen(state.opens())) as items:
                for item in filter(state.accepts, items):
                    if isinstance(item, Moved):
                        on_moved(item.cursor)
                    else:
                        yield item
        except Lost as lost:
            if delay_s := state.delay_s(lost):
                on_lost(lost, delay_s)
                wait(delay_s)


async def resume_async(
    listen: ListenAsync,
    cursor: str,
    *,
    on_lost: Callable[[Lost, float], None],
    timeout_s: float | None = None,
) -> AsyncGenerator[Event | Moved, None]:
    """Yield the items of *listen* from *cursor* on, reconnect without end, and skip repetitions.

    *timeout_s* limits the time in which no attempt to connect succeeds; None is unlimited.

    Raises:
        Refused: the server gave a final answer.
        Lost: the time limit is over.
    """
    from asyncio import sleep  # importing asyncio takes longer than the rest of this module

    state = ResumeState(cursor, timeout_s)
    while True:
        try:
            async with aclosing(listen(state.opens())) as items:
                async for item in items:
                    if state.accepts(item):
                        yield item
        except Lost as lost:
            if delay_s := state.delay_s(lost):
                on_lost(lost, delay_s)
                await sleep(delay_s)


def listeners(
    transport: Transport, url: str, ws_url: str | None, wanted: Subscription
) -> tuple[Listen, ListenAsync]:
    """Return two functions that listen to the feed at *url*: a blocking one, and one for asyncio.

    Only *transport* is imported, because the import of the other one takes a tenth of a second.

    Raises:
        WrongUrl: *url* or *ws_url* is not a valid address.
    """
    if transport == "sse":
        from tidings.client import sse

        address = operations_url(url, wanted.feed)
        return partial(sse.listen, address, wanted), partial(sse.listen_async, address, wanted)
    from tidings.client import websocket as ws

    address = socket_url(url, ws_url)
    return partial(ws.listen, address, wanted), partial(ws.listen_async, address, wanted)
