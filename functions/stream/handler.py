"""What waits for news: `GET /` as Server-Sent Events and `GET /changes`, as one ASGI app."""

from __future__ import annotations

from tidings.aws import app as root
from tidings.aws import changes_app
from tidings.aws.asgi import EventStreams
from tidings.aws.asgi_changes import ByPath, ChangeLists
from tidings.aws.attendance import Attendance
from tidings.aws.clock import now_ms

_of = root.settings()
_origins = _of.cors_origins
_streams = EventStreams(root.streamer, root.manners, now_ms, _origins)
_changes = ChangeLists(changes_app.lister, changes_app.gate, _of.feeds, _origins, _of.url_prefix)
app = ByPath(_changes, Attendance(_streams, root.tallies, now_ms, root.new_id()), _of.url_prefix)
