"""`GET /` as Server-Sent Events: an ASGI app for Lambda response streaming."""

from __future__ import annotations

from tidings.aws import app as root
from tidings.aws.asgi import EventStreams
from tidings.aws.attendance import Attendance
from tidings.aws.clock import now_ms

_streams = EventStreams(root.streamer, root.manners, now_ms, root.settings().cors_origins)
app = Attendance(_streams, root.tallies, now_ms, root.new_id())
