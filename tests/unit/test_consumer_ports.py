"""The ports of named consumers: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb_consumers import DynamoDBConsumers
from tidings.core import consumer_ports

from tests.unit.test_ports import methods


@pytest.mark.parametrize("port", [consumer_ports.ConsumerStore, consumer_ports.ConsumerShelf])
def test_an_adapter_has_the_methods_of_its_port(port: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(DynamoDBConsumers, method)) == signature
