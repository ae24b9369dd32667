"""Serve `POST /feeds/{feed}/corrections`: append one batch of the corrections of a sync."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("amend")
