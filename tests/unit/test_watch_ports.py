"""The ports of live subscriptions: what is deployed has their methods, as what is in memory has."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb_connections import DynamoDBWatches
from tidings.core import watch_ports
from tidings.core.memory import MemoryWatches

from tests.unit.test_ports import methods


@pytest.mark.parametrize("store", [DynamoDBWatches, MemoryWatches])
@pytest.mark.parametrize("port", [watch_ports.WatchIndex, watch_ports.WatchStore])
def test_a_store_has_the_methods_of_its_port(port: type, store: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(store, method)) == signature


def test_who_files_can_find() -> None:
    """One port is the other and more, so that a store is handed over once."""
    index: watch_ports.WatchIndex = MemoryWatches()
    store: watch_ports.WatchStore = MemoryWatches()
    assert (index.few("main", 0), store.all("main")) == ([], [])
