"""Serve the requests that wait for new pages: event streams, change lists and replication."""

from __future__ import annotations

from tidings.assembly.waiting import event_streams, waiting_app
from tidings.aws.effects import new_id
from tidings.aws.stage import stage
from tidings.aws.telemetry import asgi_edge

_settings = stage().settings
_streams = event_streams(stage, new_id(), _settings.stream_ms)
_app = waiting_app(stage, _streams, lazy=True, prefix=_settings.url_prefix)
app = asgi_edge(_app, _settings.address_proxies)
