"""Follow a feed for ever: connect, hand out events, connect again from the last one handled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Literal, Protocol

from .address import operations_url, socket_url
from .backoff import Backoff
from .errors import Lost
from .events import Event, Handled, Moved

if TYPE_CHECKING:
    from collections.abc import Generator

Transport = Literal["ws", "sse"]
STEADY_S = 60.0  # a connection that lasted this long was a good one, even without an event


class Listen(Protocol):
    """One connection from a cursor on; ends by raising."""

    def __call__(self, cursor: str) -> Generator[Event | Moved, None, None]: ...


def follow(
    url: str,
    *,
    transport: Transport = "ws",
    cursor: str = "now",
    feed: str = "main",
    types: Sequence[str] = (),
    parents: Sequence[str] = (),
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
    of each failure and the seconds until the next attempt.

    From `now` too nothing is missed between two attempts: both transports name the place they
    start at.

    Raises:
        Refused: the server will not answer otherwise.
        WrongUrl: *url* or *ws_url* is no address.
    """
    listen = _listener(transport, url, ws_url, feed, tuple(types), tuple(parents))
    return resume(listen, cursor, on_moved=on_moved, on_lost=on_lost, wait=wait)


def resume(
    listen: Listen,
    cursor: str,
    *,
    on_moved: Callable[[str], None],
    on_lost: Callable[[Lost, float], None],
    wait: Callable[[float], None],
) -> Iterator[Event]:
    """The loop of `follow` over any transport."""
    handled = Handled(cursor)
    backoff = Backoff()
    while True:
        opened_s = time.monotonic()
        try:
            with closing(listen(cursor)) as signs:
                for sign in signs:
                    if isinstance(sign, Moved):
                        cursor = sign.cursor
                        handled.note_moved(cursor)
                        on_moved(cursor)
                        continue
                    backoff.reset()
                    if handled.repeats(sign):
                        continue
                    yield sign
                    handled.note(sign)
                    cursor = sign.id or cursor
        except Lost as lost:
            if time.monotonic() - opened_s >= STEADY_S:
                backoff.reset()
            delay_s = max(backoff.next_s(), lost.after_s)
            on_lost(lost, delay_s)
            wait(delay_s)


def _listener(
    transport: Transport,
    url: str,
    ws_url: str | None,
    feed: str,
    types: tuple[str, ...],
    parents: tuple[str, ...],
) -> Listen:
    """Imports the one transport that is used: the other costs a tenth of a second."""
    if transport == "sse":
        from . import sse

        address = operations_url(url, feed)
        return lambda cursor: sse.listen(address, cursor, types=types, parents=parents)
    from . import socket

    address = socket_url(url, ws_url)
    return lambda cursor: socket.listen(address, cursor, feed=feed, types=types, parents=parents)
