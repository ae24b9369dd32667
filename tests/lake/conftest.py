"""One Spark session for all tests here, with Iceberg, small and quick to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tidings.lake import iceberg
from tidings.lake.errors import NoIceberg
from tidings.local.running import Twin

from tests import spark_session
from tests.lake.parts import Scene


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jar = iceberg.jar()
    except NoIceberg as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("spark")
    _end_java()
    settings = spark_session.UTC | {"spark.jars": str(jar)}
    with spark_session.session(folder, parts=1, settings=settings) as started:
        yield started
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
