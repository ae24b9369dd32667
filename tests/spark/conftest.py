"""One small Spark session for all tests here, one twin, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidings.local.running import Twin
from tidings.spark import register

from tests import spark_session
from tests.spark.feeds import FEEDS, UNUSED


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", ",".join(["main", *FEEDS])) as running:
        yield running


@pytest.fixture
def feed() -> str:
    """A feed of the twin that no other test has."""
    return next(UNUSED)


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with spark_session.session(folder, parts=1, settings=spark_session.UTC) as started:
        register(started)
        yield started
