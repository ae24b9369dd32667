"""One Spark session for all tests here, small and quick to start, and one twin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidings.local.running import Twin

from tests.sync import feeds


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running


@pytest.fixture
def feed() -> str:
    """A feed of the twin that no other test has."""
    return next(feeds.UNUSED)


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with feeds.spark(tmp_path_factory.mktemp("spark")) as started:
        yield started
