"""The ASGI app of long-polling and streaming requests: event streams, change lists, replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.http.streams.client_count import Attendance
from tidings.http.streams.sse import EventStreams
from tidings.http.streams.waiting import LoadedWhenAsked, WaitingRouter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.assembly.feed import Assembly
    from tidings.http.asgi import App
    from tidings.http.streams.tail_poller import Listen


def event_streams(
    here: Callable[[], Assembly], longest_ms: int | None = None, listen: Listen | None = None
) -> EventStreams:
    """Return the event streams of *here*, each ended after *longest_ms*; see `EventStreams`."""
    host = here()
    return EventStreams(
        lambda: here().streamer,
        lambda: here().compatibility,
        host.runtime.clock,
        host.settings.cors_origins,
        longest_ms,
        listen,
    )


def waiting_app(
    here: Callable[[], Assembly],
    streams: EventStreams,
    *,
    name: str,
    lazy: bool,
    prefix: str = "",
    listen: Listen | None = None,
) -> WaitingRouter:
    """
    Return the app; *name* identifies the process in the client count.

    If *lazy*, the app for lists and pages is loaded by the first request for one, so that a process
    that serves only event streams starts sooner.
    """
    settings = here().settings
    feeds, origins = settings.feeds, settings.cors_origins

    def lists() -> App:
        from tidings.http.streams.change_lists import ChangeLists

        return ChangeLists(
            lister=lambda: here().lister,
            gate=lambda: here().gate,
            feeds=feeds,
            origins=origins,
            prefix=settings.url_prefix,
            charges=here().charge_for,
            listen=listen,
        )

    def pages() -> App:
        from tidings.http.streams.replication_pages import ReplicationApp
        from tidings.http.streams.tail_poller import at_a_pace

        return ReplicationApp(
            replication_reader=lambda: here().replication_reader,
            guard=lambda: here().guard,
            feeds=feeds,
            origins=origins,
            listen=listen or at_a_pace,
        )

    return WaitingRouter(
        Attendance(streams, lambda: here().stores.counters, here().runtime.clock, name),
        LoadedWhenAsked(lists) if lazy else lists(),
        LoadedWhenAsked(pages) if lazy else pages(),
        prefix,
    )
