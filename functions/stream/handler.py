"""`GET /` as Server-Sent Events: an ASGI app for Lambda response streaming."""

from __future__ import annotations

from tidings.aws import app as root
from tidings.aws.asgi import EventStreams
from tidings.aws.clock import now_ms

app = EventStreams(root.streamer, now_ms, root.settings().cors_origins)
