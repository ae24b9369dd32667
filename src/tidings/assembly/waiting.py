"""The ASGI app for requests that wait: event streams, lists of changes, and replication."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.http.asgi import disable_buffering, headers_of, send_answer
from tidings.http.request import wants_links, wants_page
from tidings.http.router import CHANGES, COPIED
from tidings.http.streams.sse import ClientCounter, EventStreams
from tidings.http.streams.tail_poller import at_fixed_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.assembly.feed import Assembly
    from tidings.http.asgi import App, Message, Receive, Send
    from tidings.http.streams.tail_poller import Listen


def event_streams(
    here: Callable[[], Assembly],
    name: str,
    longest_ms: int | None = None,
    listen: Listen = at_fixed_interval,
) -> EventStreams:
    """Return the app of event streams, which ends each stream after *longest_ms* (None: never).

    *name* identifies the process in the client count.
    """
    host = here()
    return EventStreams(
        streamer=lambda: here().streamer,
        clients=ClientCounter(lambda: here().stores.counters, host.runtime.clock, name),
        origins=host.settings.cors_origins,
        longest_ms=longest_ms,
        listen=listen,
        requests=host.open_requests,
    )


def waiting_app(
    here: Callable[[], Assembly],
    streams: EventStreams,
    *,
    lazy: bool,
    prefix: str = "",
    listen: Listen = at_fixed_interval,
    has_console: bool = False,
) -> App:
    """Return an app that passes each request to the app for its path below *prefix*.

    Requests with unknown paths go to *streams*, which refuses them. If *lazy* is True, the apps for
    lists and pages are loaded at the first request for a list or for pages. A process that serves
    only event streams then starts sooner. *has_console* says whether the host serves `/console`.
    """
    lists = cache(lambda: _lists(here, listen))
    if not lazy:
        lists()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if prefix and scope["path"].startswith(f"{prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(prefix)}
        headers = headers_of(scope)
        if wants_page(scope["method"], scope["path"], headers):
            await _send_page(here(), scope, headers, send, has_console=has_console)
            return
        chosen = _choose(scope, headers, streams, lists)
        await chosen(scope, receive, disable_buffering(send))

    return app


def _choose(
    scope: Message, headers: dict[str, str], streams: App, lists: Callable[[], tuple[App, App]]
) -> App:
    path = scope["path"]
    if CHANGES.fullmatch(path) or wants_links(scope["method"], path, headers):
        return lists()[0]
    return lists()[1] if COPIED.fullmatch(path) else streams


async def _send_page(
    host: Assembly, scope: Message, headers: dict[str, str], send: Send, *, has_console: bool
) -> None:
    from tidings.http.endpoints.status import front_page  # only browsers need this module

    settings, query = host.settings, scope["query_string"].decode("latin-1")
    answer = front_page(settings.url_prefix, query, has_console=has_console)
    await send_answer(send, answer, headers, settings.cors_origins)


def _lists(here: Callable[[], Assembly], listen: Listen) -> tuple[App, App]:
    """Return the app of change lists, and the app of pages and rows."""
    from tidings.http.streams.lists import ChangeLists, ReplicationApp

    host = here()
    changes = ChangeLists(
        guard=lambda: here().guard,
        clock=host.runtime.clock,
        feed_names=host.directory,
        origins=host.settings.cors_origins,
        listen=listen,
        lister=lambda: here().lister,
        gate=lambda: here().gate,
        requests=host.open_requests,
        prefix=host.settings.url_prefix,
        charges=lambda feed, admission: here().charge_for(feed, admission),
    )
    pages = ReplicationApp(
        guard=changes.guard,
        clock=changes.clock,
        feed_names=changes.feed_names,
        origins=changes.origins,
        listen=changes.listen,
        requests=changes.requests,
        replication_reader=lambda: here().replication_reader,
    )
    return changes, pages
