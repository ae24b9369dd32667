"""The ports of chained feeds: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb_clusters import DynamoDBClusters
from tidings.aws.dynamodb_relays import DynamoDBRelays
from tidings.aws.http_upstream import HttpUpstream
from tidings.core import relay_ports

from tests.unit.test_ports import methods

ADAPTERS = [
    (relay_ports.RelayStore, DynamoDBRelays),
    (relay_ports.Upstream, HttpUpstream),
    (relay_ports.Coordinator, DynamoDBClusters),
]


@pytest.mark.parametrize(("port", "adapter"), ADAPTERS)
def test_an_adapter_has_the_methods_of_its_port(port: type, adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(adapter, method)) == signature
