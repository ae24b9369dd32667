"""`POST /feeds/{feed}/corrections`: a sync over HTTP, a request's corrections at a time."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import corrections

handle = http_edge(corrections.corrections)
