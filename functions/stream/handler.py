"""Serve requests that wait, as one ASGI app: event streams, change lists and replication."""

from __future__ import annotations

from tidings.assembly.waiting import event_streams, waiting_app
from tidings.aws.gateway.stream_edge import asgi_edge
from tidings.aws.stage import new_id, stage

_settings = stage().settings
_streams = event_streams(stage, _settings.stream_ms)
app = asgi_edge(waiting_app(stage, _streams, name=new_id(), lazy=True, prefix=_settings.url_prefix))
