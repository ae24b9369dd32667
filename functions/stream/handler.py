"""What waits for news, as one ASGI app: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from tidings.aws import access_app, changes_app, relay_app
from tidings.aws import app as root
from tidings.aws.asgi import EventStreams
from tidings.aws.asgi_changes import ByPath, ChangeLists
from tidings.aws.asgi_edge import asgi_edge
from tidings.aws.asgi_portions import Portions
from tidings.aws.attendance import Attendance
from tidings.aws.clock import now_ms

_of = root.settings()
_origins = _of.cors_origins
_streams = EventStreams(root.streamer, root.manners, now_ms, _origins, _of.stream_ms)
_changes = ChangeLists(
    changes_app.lister,
    changes_app.gate,
    _of.feeds,
    _origins,
    _of.url_prefix,
    access_app.charge_for,
)
_attended = Attendance(_streams, root.tallies, now_ms, root.new_id())
_portions = Portions(relay_app.portioner, root.guard, _of.feeds, _origins, _attended)
app = asgi_edge(ByPath(_changes, _portions, _of.url_prefix))
