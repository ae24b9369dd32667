"""Serve `POST /changes`: append a change from a client of changeagent, and return its id."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("propose")
