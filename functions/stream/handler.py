"""What waits for news, as one ASGI app: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.gateway.stream_edge import asgi_edge
from tidings.aws.runtime.clock import now_ms
from tidings.aws.stage import new_id, stage
from tidings.http.streams.client_count import Attendance
from tidings.http.streams.sse import EventStreams
from tidings.http.streams.waiting import LoadedWhenAsked, WaitingRouter

if TYPE_CHECKING:
    from tidings.http.asgi import App

_settings = stage().settings
_feeds, _origins = _settings.feeds, _settings.cors_origins
_streams = EventStreams(
    lambda: stage().streamer, lambda: stage().compatibility, now_ms, _origins, _settings.stream_ms
)


def _lists() -> App:
    from tidings.http.streams.change_lists import ChangeLists

    return ChangeLists(
        lambda: stage().lister,
        lambda: stage().gate,
        _feeds,
        _origins,
        _settings.url_prefix,
        stage().charge_for,
    )


def _pages() -> App:
    from tidings.http.streams.replication_pages import ReplicationApp

    return ReplicationApp(
        lambda: stage().replication_reader, lambda: stage().guard, _feeds, _origins
    )


# Most readers ask for streams alone, and wait for as long as the process takes to start.
app = asgi_edge(
    WaitingRouter(
        Attendance(_streams, lambda: stage().stores.counters, now_ms, new_id()),
        LoadedWhenAsked(_lists),
        LoadedWhenAsked(_pages),
        _settings.url_prefix,
    )
)
