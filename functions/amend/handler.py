"""`POST /feeds/{feed}/corrections`: a sync over HTTP, one batch of corrections per request."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("amend")
