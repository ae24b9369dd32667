"""Addresses of a feed."""

from __future__ import annotations

import pytest

from tidings.client.address import operations_url, socket_url


@pytest.mark.parametrize("path", ["", "/", "/ops", "/ops/"])
def test_an_address_of_oplog_is_one_of_tidings(path: str) -> None:
    """Its clients were given `/` or `/ops`: both are the feed `main`."""
    assert operations_url(f"http://h:8042{path}", "main") == "http://h:8042/feeds/main/ops"
    assert socket_url(f"https://h{path}") == "wss://h/ws"


def test_a_feed_below_a_path() -> None:
    """A stage of API Gateway is part of the path; a feed's name is one segment of it."""
    assert operations_url("https://h/prod/", "a/b") == "https://h/prod/feeds/a%2Fb/ops"
    assert socket_url("http://h", "wss://sockets/prod") == "wss://sockets/prod"
