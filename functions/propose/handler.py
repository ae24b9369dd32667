"""`POST /changes`: accept a change in the format of changeagent's clients; answer with its id."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("propose")
