"""What waits for news, as one ASGI app: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from tidings.aws.runtime.clock import now_ms
from tidings.aws.web.changes_list import ByPath, ChangeLists
from tidings.aws.web.client_count import Attendance
from tidings.aws.web.replication_pages import Portions
from tidings.aws.web.stream import EventStreams
from tidings.aws.web.stream_edge import asgi_edge
from tidings.aws.wiring import adapters, auth, changeagent, replication
from tidings.aws.wiring import core as root

_of = adapters.settings()
_origins = _of.cors_origins
_streams = EventStreams(root.streamer, root.compatibility, now_ms, _origins, _of.stream_ms)
_changes = ChangeLists(
    changeagent.lister,
    changeagent.gate,
    _of.feeds,
    _origins,
    _of.url_prefix,
    auth.charge_for,
)
_attended = Attendance(_streams, adapters.tallies, now_ms, adapters.new_id())
_portions = Portions(replication.portioner, auth.guard, _of.feeds, _origins, _attended)
app = asgi_edge(ByPath(_changes, _portions, _of.url_prefix))
