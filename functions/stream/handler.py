"""What waits for news, as one ASGI app: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.gateway.stream_edge import asgi_edge
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, changeagent, core, replication
from tidings.http.streams.client_count import Attendance
from tidings.http.streams.sse import EventStreams
from tidings.http.streams.waiting import LoadedWhenAsked, WaitingRouter

if TYPE_CHECKING:
    from tidings.http.asgi import App

_settings = adapters.settings()
_feeds, _origins = _settings.feeds, _settings.cors_origins
_streams = EventStreams(
    core.streamer, adapters.compatibility, now_ms, _origins, _settings.stream_ms
)


def _lists() -> App:
    from tidings.http.streams.change_lists import ChangeLists

    return ChangeLists(
        changeagent.lister,
        changeagent.gate,
        _feeds,
        _origins,
        _settings.url_prefix,
        auth.charge_for,
    )


def _pages() -> App:
    from tidings.http.streams.replication_pages import Portions

    return Portions(replication.portioner, auth.guard, _feeds, _origins)


# Most readers ask for streams alone, and wait for as long as the process takes to start.
app = asgi_edge(
    WaitingRouter(
        Attendance(_streams, adapters.tallies, now_ms, adapters.new_id()),
        LoadedWhenAsked(_lists),
        LoadedWhenAsked(_pages),
        _settings.url_prefix,
    )
)
