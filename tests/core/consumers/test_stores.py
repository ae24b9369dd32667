"""The ports of named consumers: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb.consumers import DynamoDBConsumers
from tidings.core.consumers.stores import ConsumerShelf, ConsumerStore

from tests.core.test_stores import methods


@pytest.mark.parametrize("port", [ConsumerStore, ConsumerShelf])
def test_an_adapter_has_the_methods_of_its_port(port: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(DynamoDBConsumers, method)) == signature
