"""For operators: `/health`, `/config`, `/cluster` and `/diagnostics`."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import changeagent

handle = http_edge(changeagent.administration)
