"""The engines that stores are tried on. Each test has a feed of its own in their tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.stores import (
    ENGINES,
    Conflicts,
    Stores,
    client_in,
    emulated,
    in_memory,
    on_dynamodb,
    on_sqlite,
)
from tests.twin import dynamodb_local as engine

# The contracts are not test files themselves; without this their failures show no values.
for _module in ("spill", "upstream"):
    pytest.register_assert_rewrite(f"tests.contract.{_module}")

_NUMBERS = count(1)


@pytest.fixture
def feed() -> str:
    return f"feed-{next(_NUMBERS)}"


@pytest.fixture(scope="package")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDBClient]:
    """A client of AWS's own engine; its environment is gone when a test of moto begins."""
    log = tmp_path_factory.mktemp("dynamodb-local") / "log"
    log.touch()
    with asyncio.Runner() as runner:
        running = runner.run(engine.start(port=0, data=None, log=log))
        try:
            with client_in({"AWS_ENDPOINT_URL": running.url}) as client:
                pass
            yield client
        finally:
            runner.run(running.stop())


@pytest.fixture(params=ENGINES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "memory":
        yield in_memory()
    elif request.param == "sqlite":
        with on_sqlite(tmp_path / "feed.db") as stores:
            yield stores
    elif request.param == "moto":
        with emulated(Conflicts()), client_in({}) as client:
            yield on_dynamodb(client)
    else:
        yield on_dynamodb(request.getfixturevalue("dynamodb_local"))
