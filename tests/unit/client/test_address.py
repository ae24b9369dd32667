"""The addresses of a feed, and the parameters of a client's requests."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path

import pytest

from tests.conformance.scene import FILTERS
from tidings.client import Consumer, follow
from tidings.client.address import SWITCHES, Subscription, operations_url, socket_url
from tidings.client.cli.tail import tail
from tidings.core.model import events
from tidings.core.model.filters import FIELDS
from tidings.http.endpoints.status import CLIENT


@pytest.mark.parametrize("path", ["", "/", "/ops", "/ops/"])
def test_an_address_of_oplog_is_one_of_tidings(path: str) -> None:
    """Its clients were given `/` or `/ops`: both are the feed `main`."""
    assert operations_url(f"http://h:8042{path}", "main") == "http://h:8042/feeds/main/ops"
    assert socket_url(f"https://h{path}") == "wss://h/ws"


def test_a_feed_below_a_path() -> None:
    """A stage of API Gateway is part of the path; a feed's name is one segment of it."""
    assert operations_url("https://h/prod/", "a/b") == "https://h/prod/feeds/a%2Fb/ops"
    assert socket_url("http://h", "wss://sockets/prod") == "wss://sockets/prod"


def test_all_that_a_feed_filters_by_can_be_asked_for() -> None:
    """The two clients, the command line and the conformance suite each have all filters."""
    javascript = (Path(__file__).parents[3] / CLIENT / "addresses.js").read_text()
    options = {option for each in tail.params for option in each.opts}

    assert FIELDS == FILTERS
    assert {*SWITCHES} == {*events.SWITCHES} - {"trace"}  # traces are for operators
    assert {each.name for each in fields(Subscription)} >= {*FIELDS, *SWITCHES}
    assert {*inspect.signature(Consumer).parameters} >= {*FIELDS}
    assert {*inspect.signature(follow).parameters} >= {*FIELDS}
    assert options >= {f"--{name}" for name in (*FIELDS, *SWITCHES)}
    assert f"LISTS = {json.dumps(FIELDS)};" in javascript
    assert f"SWITCHES = {json.dumps([*SWITCHES])};" in javascript
