"""`GET /status`: how a feed is; `GET /openapi.json`: what may be asked."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge

handle = http_edge("report")
