"""Each handler in this process, in the environment of its deployment, on DynamoDB by moto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.answering import Answer, answering
from tests.contract.faults import Faults
from tests.contract.stores import create, emulated
from tests.functions.cloud import Cloud, restart
from tidings.aws import clients
from tidings.aws.config.deployment import TABLES

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",  # moto knows no endpoint of an account
    "POWERTOOLS_SERVICE_NAME": "tidings-dev",
    "TIDINGS_STAGE": "dev",
    "TIDINGS_OPEN": "true",  # but for the tests of closed feeds
    "TIDINGS_FUNCTION_PREFIX": "tidings-dev-",
}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Empty tables, and nothing built yet; afterwards nothing is left of it."""
    faults = Faults()
    with answering(Answer(200)) as around, emulated(faults):
        tables = {table.setting: table.name for table in TABLES}
        endpoints = {"AWS_ENDPOINT_URL_LAMBDA": around.url, "TIDINGS_SOCKETS_URL": around.url}
        for name, value in {**ENVIRONMENT, **tables, **endpoints}.items():
            monkeypatch.setenv(name, value)
        restart()
        for table in TABLES:
            create(clients.dynamodb(), table)
        yield Cloud(around, faults)
    restart()
