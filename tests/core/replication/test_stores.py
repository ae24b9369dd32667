"""The ports of chained feeds: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb.clusters import DynamoDBClusters
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.replication.stores import Coordinator, RelayStore, Upstream
from tidings.web.outbound.upstream import HttpUpstream

from tests.core.test_stores import methods

ADAPTERS = [
    (RelayStore, DynamoDBRelays),
    (Upstream, HttpUpstream),
    (Coordinator, DynamoDBClusters),
]


@pytest.mark.parametrize(("port", "adapter"), ADAPTERS)
def test_an_adapter_has_the_methods_of_its_port(port: type, adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(adapter, method)) == signature
