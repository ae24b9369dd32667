"""The ports of live subscriptions: what is deployed has their methods, as what is in memory has."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb.connections import DynamoDBSubscriptions
from tidings.core.websocket.stores import SubscriptionIndex, SubscriptionStore

from tests.core.test_stores import methods
from tests.fakes import MemorySubscriptions


@pytest.mark.parametrize("store", [DynamoDBSubscriptions, MemorySubscriptions])
@pytest.mark.parametrize("port", [SubscriptionIndex, SubscriptionStore])
def test_a_store_has_the_methods_of_its_port(port: type, store: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(store, method)) == signature


def test_who_files_can_find() -> None:
    """One port is the other and more, so that a store is handed over once."""
    index: SubscriptionIndex = MemorySubscriptions()
    store: SubscriptionStore = MemorySubscriptions()
    assert (index.few("main", 0), store.all("main")) == ([], [])
