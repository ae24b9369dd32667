"""`GET /status`: how a feed is; `GET /openapi.json`: what may be asked."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import core

handle = http_edge(core.status)
