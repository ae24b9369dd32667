"""`POST /feeds/{feed}/corrections`: a sync over HTTP, a request's corrections at a time."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge

handle = http_edge("amend")
