"""Serve operators of chained feeds: `/relays`, and `/relay` of a feed."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("supervise")
