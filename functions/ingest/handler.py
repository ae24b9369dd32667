"""What producers post: operations; and every path that no other function takes."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge

handle = http_edge("ingest")
