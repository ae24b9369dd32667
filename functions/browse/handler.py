"""Serve HTTP listeners: resources, registrations, and the objects of a feed."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("browse")
