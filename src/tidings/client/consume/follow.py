"""
Follow a feed for ever: connect, hand out events, connect again from the last one handled.

`Course` decides; `resume` and `resume_async` do the same over a transport, blocking or not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import Literal

from tidings.client.address import operations_url, socket_url
from tidings.client.backoff import Backoff
from tidings.client.errors import Ended, Lost
from tidings.client.events import Event, Handled, Moved
from tidings.client.subscription import Subscription

# One connection from a cursor on; ends by raising.
Listen = Callable[[str], Generator[Event | Moved, None, None]]
ListenAsync = Callable[[str], AsyncGenerator[Event | Moved, None]]
Transport = Literal["ws", "sse"]
STEADY_S = 60.0  # a connection that lasted this long was a good one, even without an event


def follow(
    url: str,
    *,
    transport: Transport = "ws",
    cursor: str = "now",
    feed: str = "main",
    types: Sequence[str] = (),
    parents: Sequence[str] = (),
    ids: Sequence[str] = (),
    leave: bool = False,
    password: str = "",
    ws_url: str | None = None,
    on_moved: Callable[[str], None] = lambda cursor: None,
    on_lost: Callable[[Lost, float], None] = lambda lost, delay_s: None,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """
    The events of *feed* after *cursor*, for ever.

    An event counts as handled when the next one is asked for; after a failure the feed is
    resumed from the last one handled, and what repeats is left out. Keep `event.id` to
    resume later, and what *on_moved* tells while nothing matches the filter. *on_lost* hears
    of each failure and the seconds until the next attempt; a stream that the server ended in its
    time is none, and is resumed at once.

    From `now` too nothing is missed between two attempts: both transports name the place they
    start at.

    Raises:
        AccessDenied: the password is not the feed's.
        Refused: the server will not answer otherwise.
        WrongUrl: *url* or *ws_url* is no address.
    """
    wanted = Subscription(feed, tuple(types), tuple(parents), leave, password, tuple(ids))
    listen, _ = listeners(transport, url, ws_url, wanted)
    return resume(listen, cursor, on_moved=on_moved, on_lost=on_lost, wait=wait)


class Course:
    """What outlives a connection: the cursor, what was handled, how long to wait."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self._handled = Handled(cursor)
        self._backoff = Backoff()
        self._opened_s = 0.0

    def opens(self) -> None:
        self._opened_s = time.monotonic()

    def takes(self, event: Event) -> bool:
        """Whether *event* is new. It counts as handled before the next sign is read."""
        self._backoff.reset()
        if self._handled.repeats(event):
            return False
        self._handled.note(event)
        self.cursor = event.id or self.cursor
        return True

    def moves(self, moved: Moved) -> None:
        self.cursor = moved.cursor
        self._handled.note_moved(moved.cursor)

    def loses(self, lost: Lost) -> float:
        """Seconds until the next attempt; 0 behind a stream that ended in its time."""
        if time.monotonic() - self._opened_s >= STEADY_S:
            self._backoff.reset()
            if isinstance(lost, Ended):
                return 0.0
        return max(self._backoff.next_s(), lost.after_s)


def resume(
    listen: Listen,
    cursor: str,
    *,
    on_moved: Callable[[str], None],
    on_lost: Callable[[Lost, float], None],
    wait: Callable[[float], None],
) -> Iterator[Event]:
    """The loop of `follow` over any transport."""
    course = Course(cursor)
    while True:
        course.opens()
        try:
            with closing(listen(course.cursor)) as signs:
                for sign in signs:
                    if isinstance(sign, Moved):
                        course.moves(sign)
                        on_moved(sign.cursor)
                    elif course.takes(sign):
                        yield sign
        except Lost as lost:
            delay_s = course.loses(lost)
            if delay_s:
                on_lost(lost, delay_s)
                wait(delay_s)


async def resume_async(
    listen: ListenAsync, cursor: str, *, on_lost: Callable[[Lost, float], None]
) -> AsyncGenerator[Event | Moved, None]:
    """
    What *listen* brings from *cursor* on, connected again for ever, repetitions left out.

    Raises:
        Refused: the server will not answer otherwise.
    """
    from asyncio import sleep  # which costs more to import than all of this module

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
                await sleep(delay_s)


def listeners(
    transport: Transport, url: str, ws_url: str | None, wanted: Subscription
) -> tuple[Listen, ListenAsync]:
    """
    One transport to the feed at *url*. The other is not imported: it costs a tenth of a second.

    Raises:
        WrongUrl: *url* or *ws_url* is no address.
    """
    if transport == "sse":
        from tidings.client.transport import sse

        address = operations_url(url, wanted.feed)
        return partial(sse.listen, address, wanted), partial(sse.listen_async, address, wanted)
    from tidings.client.transport import websocket as ws

    address = socket_url(url, ws_url)
    return partial(ws.listen, address, wanted), partial(ws.listen_async, address, wanted)
