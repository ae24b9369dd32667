"""A Spark session if Iceberg is installed, one twin, and an archive of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import spark_session
from tests.twin import Twin
from tests.unit.lake.parts import Scene
from tests.unit.sync.conftest import pytest_itemcollected

__all__ = ["pytest_itemcollected"]


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin("--feeds", "main,fresh,gaps,asked,c1,c2,c3") as running:
        yield running


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    if not spark.conf.get(spark_session.JARS):
        pytest.skip("needs Apache Iceberg, which is downloaded once")
    return Scene(spark, tmp_path)
