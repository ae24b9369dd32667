"""One Spark session for all tests here, small and quick to start, and one twin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidings.local.running import Twin

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
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "2",  # parts as many as on two cores, on the one that is left
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Of a few rows most of the time would go into compiling.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
