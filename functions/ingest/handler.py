"""Serve producers that post operations; also the default route for unknown paths."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("ingest")
