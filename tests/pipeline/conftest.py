"""One Spark session for all tests here, small and quick to start, and one twin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidings.local.running import Twin

from tests import spark_session
from tests.pipeline.feeds import FEEDS, UNUSED


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", ",".join(FEEDS)) as running:
        yield running


@pytest.fixture
def feed() -> str:
    """A feed of the twin that no other test has."""
    return next(UNUSED)


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    # Parts as many as on two cores, on the one that is left.
    with spark_session.session(folder, parts=2, settings={}) as started:
        yield started
