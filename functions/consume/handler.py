"""Named consumers and the log as their operators see it: `/consumers` and `/log` of a feed."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import consumers

handle = http_edge(consumers.endpoint)
