"""What Spark's Python workers begin with."""

from __future__ import annotations

import gc
import sys

from pyspark.sql import SparkSession


def test_a_worker_has_all_it_needs_and_no_archive(spark: SparkSession) -> None:
    """It uses the installed PySpark; boto3 is imported before the first task, and frozen for the
    garbage collector.
    """

    def seen(_: int) -> tuple[str, list[str], bool, int]:
        import pyspark

        archives = [each for each in sys.path_importer_cache if ".zip" in each or ".jar" in each]
        return str(pyspark.__file__), archives, "boto3" in sys.modules, gc.get_freeze_count()

    ((file, archives, prepared, kept),) = spark.sparkContext.parallelize([0], 1).map(seen).collect()

    assert ".zip" not in file
    assert archives == []
    assert (prepared, kept > 0) == (True, True)
