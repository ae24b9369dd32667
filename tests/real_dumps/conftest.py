"""What the command meets: a twin, and a Spark session for the runs that stay in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidings.local.running import Twin

from tests.sync import feeds
from tests.sync.conftest import feed

__all__ = ["feed"]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with feeds.twin() as running:
        yield running


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with feeds.spark(tmp_path_factory.mktemp("spark")) as started:
        yield started
