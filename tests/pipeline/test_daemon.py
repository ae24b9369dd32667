"""What Spark's Python workers begin with."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def test_a_worker_has_all_it_needs_and_no_archive(spark: SparkSession) -> None:
    """PySpark is the installed one, and boto3 is there before a task asks for it."""

    def seen(_: int) -> tuple[str, list[str], bool]:
        import pyspark

        archives = [each for each in sys.path_importer_cache if "pyspark.zip" in each]
        return str(pyspark.__file__), archives, "boto3" in sys.modules

    ((file, archives, prepared),) = spark.sparkContext.parallelize([0], 1).map(seen).collect()

    assert ".zip" not in file
    assert archives == []
    assert prepared
