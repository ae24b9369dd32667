"""The ports: what the core needs, and the fakes that keep to them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Protocol

import pytest
import tidings.core
from tidings.core import counters, effects
from tidings.core.log import renewal
from tidings.core.maintenance import restore
from tidings.core.state import tombstones

from tests import fakes

MODULES = [counters, effects, renewal, restore, tombstones] + [
    importlib.import_module(each.name)
    for each in pkgutil.walk_packages(tidings.core.__path__, "tidings.core.")
    if each.name.endswith(".stores")
]

PORTS = {
    name: port
    for module in MODULES
    for name, port in vars(module).items()
    if inspect.isclass(port) and Protocol in port.__bases__
}
STORES = [getattr(fakes, name) for name in fakes.__all__]


def methods(port: type) -> list[str]:
    functions = (name for name, value in vars(port).items() if inspect.isfunction(value))
    return [name for name in functions if name == "__call__" or not name.startswith("_")]


def implemented(store: type) -> list[str]:
    """The ports that the class says it implements."""
    return re.findall(r"`([A-Z]\w+)`", (store.__doc__ or "").partition("\n\n")[0])


@pytest.mark.parametrize("port", PORTS.values(), ids=list(PORTS))
def test_a_port_says_what_it_promises(port: type) -> None:
    """It has methods, a docstring, and one on each method with a name."""
    assert methods(port)
    assert port.__doc__
    for name in methods(port):
        assert name == "__call__" or getattr(port, name).__doc__


def test_every_store_has_a_memory_of_its_own() -> None:
    """All but the plain functions: hooks and bcrypt."""
    plain = {name for name, port in PORTS.items() if methods(port) == ["__call__"]}

    assert {name for store in STORES for name in implemented(store)} == set(PORTS) - plain
    assert plain == {"WebhookVeto", "CheckBcrypt", "Post"}
