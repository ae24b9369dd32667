"""Addresses, the parameters of a client's requests, and the types of `@tidings/client`."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.conformance.scene import FILTERS
from tests.style.source import ROOT
from tidings.client import Consumer, follow
from tidings.client.address import SWITCHES, Subscription, operations_url, socket_url
from tidings.client.cli.tail import tail
from tidings.client.operator import Operator
from tidings.core.model import events
from tidings.core.model.filters import FIELDS
from tidings.http.endpoints.status import CLIENT
from tidings.http.openapi import SCHEMAS


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


TYPES = (ROOT / "clients/javascript/src/index.d.ts").read_text()
_MEMBER = re.compile(r"^  (\w+)\??[:(]", re.M)


def members(interface: str) -> set[str]:
    """Return the members of an interface, and of those that it extends."""
    found = re.search(
        rf"interface {interface}(?:<.*?>)?(?: extends (\w+))? \{{\n(.*?)^\}}", TYPES, re.M | re.S
    )
    assert found, interface
    return {*_MEMBER.findall(found[2])} | (members(found[1]) if found[1] else set())


@pytest.mark.parametrize(
    ("interface", "schema", "apart"),
    [
        ("Operation", "Operation", set()),
        ("Content", "FeedObject", {"change"}),  # of changeagent's changes, which it does not post
    ],
)
def test_an_interface_has_the_fields_of_its_schema(
    interface: str, schema: str, apart: set[str]
) -> None:
    assert members(interface) | apart == {*SCHEMAS[schema]["properties"]}


def test_a_feed_has_an_option_for_each_field_of_a_filter() -> None:
    assert {*FIELDS, *SWITCHES} <= members("FeedOptions")


def test_a_key_is_created_with_each_field() -> None:
    arguments = {*inspect.signature(Operator.create_key).parameters} - {"self", "host"}
    assert arguments == {*SCHEMAS["KeyRequest"]["properties"]}
