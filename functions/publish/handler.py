"""POST of items: what a publisher says has changed becomes one page of the log."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import triton

handle = http_edge(triton.items)
