"""Test that every port of the core is documented and has a fake."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Protocol

import pytest

import tidings.core
from tests import fakes

# Protocols without a stored state of their own.
OTHERS = {
    "Bearers",
    "ClientReporter",
    "FeedData",
    "FeedHost",
    "FeedNames",
    "Handler",
    "Precondition",
    "Room",
    "Step",
    "TextEraser",
}
PROTOCOLS = {
    name: port
    for each in pkgutil.walk_packages(tidings.core.__path__, "tidings.core.")
    for name, port in vars(importlib.import_module(each.name)).items()
    if inspect.isclass(port) and Protocol in port.__bases__
}
PORTS = {name: port for name, port in PROTOCOLS.items() if name not in OTHERS}
STORES = [getattr(fakes, name) for name in fakes.__all__]


def methods(port: type) -> list[str]:
    functions = (name for name, value in vars(port).items() if inspect.isfunction(value))
    return [name for name in functions if not name.startswith("_")]


def implemented(store: type) -> list[str]:
    """Return the ports that the class says it implements."""
    return re.findall(r"`([A-Z]\w+)`", (store.__doc__ or "").partition("\n\n")[0])


@pytest.mark.parametrize("port", PORTS.values(), ids=list(PORTS))
def test_a_port_says_what_it_promises(port: type) -> None:
    """It has methods, a docstring, and one on each method."""
    assert methods(port)
    assert port.__doc__
    for name in methods(port):
        assert getattr(port, name).__doc__


def test_every_store_has_a_memory_of_its_own() -> None:
    assert {name for store in STORES for name in implemented(store)} == set(PORTS)
    assert set(PROTOCOLS) >= OTHERS
