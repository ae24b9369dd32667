"""The types of `@tidings/client`, and the operator's client, have the fields that are declared."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.style.source import ROOT
from tidings.client.address import SWITCHES
from tidings.client.operator import Operator
from tidings.core.model.filters import FIELDS
from tidings.http.openapi import SCHEMAS

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
