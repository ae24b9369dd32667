"""
A feed as a data source of Spark.

    from tidings.spark import register

    register(spark)
    spark.read.format("tidings").option("url", "http://127.0.0.1:8042").load()
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType
from tidings.spark.drain import drain, lag
from tidings.spark.source import TidingsSource

__all__ = ["drain", "lag", "latest", "register"]


def register(spark: SparkSession) -> None:
    """Let *spark* read and write `format("tidings")`; it is the active session from then on."""
    # Spark looks in the active session whether the name is taken, and refuses one that is.
    spark.createDataFrame([], StructType())
    spark.dataSource.register(TidingsSource)


def latest(log: DataFrame) -> DataFrame:
    """
    The latest operation of each object in *log*: its state as of where the read ended.

    All of the log has to be in it, with its columns page, slot, event, type, id and line, or what
    is older and did not change since is missing. Deleted objects are there, as deletes; changes
    have no object and are left out.
    """
    objects = log.where("event != 'reset' and not endswith(line, ',\"change\":true}')")
    place = functions.struct("page", "slot")
    last = functions.max_by(functions.struct(*log.columns), place).alias("last")
    return objects.groupBy("type", "id").agg(last).select("last.*")
