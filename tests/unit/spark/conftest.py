"""The Spark session with feeds as tables, one twin, and a feed of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.twin import Twin
from tests.unit.spark.feeds import FEEDS, UNUSED
from tests.unit.sync.conftest import pytest_itemcollected
from tidings.spark import register

__all__ = ["pytest_itemcollected"]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", ",".join(["main", *FEEDS])) as running:
        yield running


@pytest.fixture
def feed() -> str:
    """Return a feed of the twin that no other test has."""
    return next(UNUSED)


@pytest.fixture(scope="package")
def spark(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark
