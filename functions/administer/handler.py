"""Serve operators: `/health`, `/config`, `/cluster` and `/diagnostics`."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("administer")
