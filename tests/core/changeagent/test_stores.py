"""The ports of changes: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.dynamodb.documents import DynamoDBOperatorDocuments
from tidings.aws.dynamodb.tags import DynamoDBTags
from tidings.core.changeagent.stores import AskHooks, CheckBcrypt, OperatorDocuments, TagStore
from tidings.web.outbound.bcrypt import matches
from tidings.web.outbound.webhooks import Webhooks

from tests.core.test_stores import methods


@pytest.mark.parametrize(
    ("port", "adapter"),
    [
        (TagStore, DynamoDBTags),
        (OperatorDocuments, DynamoDBOperatorDocuments),
        (AskHooks, Webhooks),
    ],
)
def test_an_adapter_has_the_methods_of_its_port(port: type, adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(adapter, method)) == signature


def test_bcrypt_is_asked_as_the_port_says() -> None:
    """By place: the password first."""
    [wanted] = methods(CheckBcrypt).values()
    assert [*inspect.signature(matches).parameters] == [*wanted.parameters][1:]
