"""Serve named consumers and the operators' view of the log: `/consumers` and `/log` of a feed."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("consume")
