"""Serve `GET /status`, the status of a feed, and the descriptions of the API."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("report")
