"""Resources as an operator writes them."""

from __future__ import annotations

import pytest

from tidings.core.errors import InvalidSetting
from tidings.core.settings.values import Resource, check_all, parse


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("vm:nic,alias=/vms", Resource("vm", ("nic", "alias"), "/vms")),
        ("vm:nic=/vms?a=b", Resource("vm", ("nic",), "/vms?a=b")),
        ("vm:nic", Resource("vm", ("nic",), "/feeds/main/objects?type=vm")),
        ("a b:", Resource("a b", (), "/feeds/main/objects?type=a%20b")),
    ],
)
def test_a_resource_is_read(text: str, resource: Resource) -> None:
    """Without a route it is our own."""
    assert parse(text, "main") == resource


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vm", "must be NAME:SUB"),
        (":nic", "must not be empty"),
        ("VM:nic", "lower case"),
        ("change:nic", "without an object"),
        ("vm:nic=vms", "must be a path"),
        ("vm:nic=/v ms", "must be a path"),
        ("vm:" + ",".join(f"s{number}" for number in range(33)), "at most 32"),
        (f"vm:{'x' * 641}", "at most 640 bytes"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    """Before anything is saved."""
    with pytest.raises(InvalidSetting, match=sentence):
        parse(text, "main")


def test_a_feed_declares_so_many() -> None:
    """Each is sent with every list of them."""
    many = [Resource(f"r{number}", (), "/") for number in range(33)]
    with pytest.raises(InvalidSetting, match="at most 32"):
        check_all(many, 3600)
