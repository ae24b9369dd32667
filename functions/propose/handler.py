"""`POST /changes`: a change as changeagent's clients post it; its id is the answer."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge

handle = http_edge("propose")
