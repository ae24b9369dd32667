"""The ports of changes: what is deployed has their methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.bcrypts import matches
from tidings.aws.dynamodb_sheets import DynamoDBSheets
from tidings.aws.dynamodb_tags import DynamoDBTags
from tidings.aws.webhooks import Webhooks
from tidings.core import change_ports

from tests.unit.test_ports import methods


@pytest.mark.parametrize(
    ("port", "adapter"),
    [
        (change_ports.TagStore, DynamoDBTags),
        (change_ports.Sheets, DynamoDBSheets),
        (change_ports.AskHooks, Webhooks),
    ],
)
def test_an_adapter_has_the_methods_of_its_port(port: type, adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(adapter, method)) == signature


def test_bcrypt_is_asked_as_the_port_says() -> None:
    """By place: the password first."""
    [wanted] = methods(change_ports.CheckBcrypt).values()
    assert [*inspect.signature(matches).parameters] == [*wanted.parameters][1:]
