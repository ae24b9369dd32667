"""One Spark session for all tests here, with Iceberg, small and quick to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tidings.lake import iceberg
from tidings.lake.errors import NoIceberg
from tidings.local.running import Twin

from tests.lake.parts import Scene

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    # Of a few rows most of the time would go into compiling.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jar = iceberg.jar()
    except NoIceberg as missing:
        pytest.skip(str(missing))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    _end_java()
    builder = SparkSession.builder.master("local[1]").config("spark.jars", str(jar))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder))
    session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    _end_java()


def _end_java() -> None:
    """What other tests started has no Iceberg: a Java knows only what it was started with."""
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", "main,fresh,c1,c2,c3") as running:
        yield running


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)
