"""Chained feeds as their operators see them: `/relays`, and `/relay` of a feed."""

from __future__ import annotations

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.wiring import replication

handle = http_edge(replication.router)
