"""One twin for all tests here, and a feed of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.twin import Twin
from tests.unit.sync import feeds
from tidings.sync import sail


def pytest_itemcollected(item: pytest.Function) -> None:
    """Mark tests with a twin, as it needs Java."""
    if "twin" in item.fixturenames:
        item.add_marker("java")


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running


@pytest.fixture
def feed() -> str:
    """Return a feed of the twin that no other test has."""
    return next(feeds.UNUSED)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Yield a session of Sail, or of Spark for tests with `engines.on_both`."""
    if getattr(request, "param", "sail") == "spark":
        yield request.getfixturevalue("spark")
        return
    with sail.session() as started:
        yield started
