"""The log lines of a server for a traced request."""

from __future__ import annotations

import re

import httpx

from tests.compat.oplog.wire import until
from tidings.server.running import Server

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_LINE = re.compile(rf"INFO tidings\.traces traced trace_id={ID} step=(\w+) feed=main page=1 ms=\d+")


def test_a_traced_request_is_found_in_the_log_by_its_id() -> None:
    """The request and each follower have a line; another request has none."""
    operation = {"event": "insert", "type": "video", "id": "x32"}
    headers = {"traceparent": f"00-{ID}-00f067aa0ba902b7-01"}
    with Server() as server:
        httpx.post(server.url, json=operation, headers=headers).raise_for_status()
        httpx.post(server.url, json=operation).raise_for_status()
        until(lambda: len(_LINE.findall(server.errors())) == 3)
        assert sorted(_LINE.findall(server.errors())) == ["ingest", "push", "state"]
        assert server.errors().count("traced") == 3
