"""Serve producers that post operations. This is also the function of the default route."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("ingest")
