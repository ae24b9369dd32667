"""Serve publishers: append the items of a POST as one page of the log."""

from __future__ import annotations

from tidings.aws.http_edge import http_edge

handle = http_edge("publish")
