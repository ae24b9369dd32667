"""What waits for news, as one ASGI app: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from tidings.aws.gateway.stream_edge import asgi_edge
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, changeagent, core, replication
from tidings.web.change_lists import ChangeLists
from tidings.web.client_count import Attendance
from tidings.web.replication_pages import Portions
from tidings.web.sse import EventStreams
from tidings.web.waiting import WaitingRouter

_settings = adapters.settings()
_feeds, _origins = _settings.feeds, _settings.cors_origins
_streams = EventStreams(
    core.streamer, adapters.compatibility, now_ms, _origins, _settings.stream_ms
)
app = asgi_edge(
    WaitingRouter(
        Attendance(_streams, adapters.tallies, now_ms, adapters.new_id()),
        ChangeLists(
            changeagent.lister,
            changeagent.gate,
            _feeds,
            _origins,
            _settings.url_prefix,
            auth.charge_for,
        ),
        Portions(replication.portioner, auth.guard, _feeds, _origins),
        _settings.url_prefix,
    )
)
