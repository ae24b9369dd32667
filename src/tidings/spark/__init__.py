"""A feed as a data source of Spark.

from tidings.spark import register

register(spark)
spark.read.format("tidings").option("url", "http://127.0.0.1:8042").load()
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from tidings.core.model.operations import WITHOUT_OBJECT
from tidings.spark.reader import TidingsSource, drain, lag

__all__ = ["drain", "lag", "latest", "register"]


def register(spark: SparkSession) -> None:
    """Register `format("tidings")` with *spark*, and make *spark* the active session."""
    # Spark looks in the active session for an existing source of this name, and rejects a second
    # source with the same name. The empty frame makes *spark* the active session.
    spark.createDataFrame([], StructType())
    spark.dataSource.register(TidingsSource)


def latest(log: DataFrame) -> DataFrame:
    """Return the latest operation of each object in *log*: the state at the end of the read.

    *log* must be a read of the whole log with the columns page, slot, event, type, id and line. If
    the read starts later, objects that did not change since then are missing. Deleted objects are
    included, as operations `delete`. Changes (PROTOCOL 12) and erased entries have no object, and
    are left out.
    """
    objects = log.where("event != 'reset'")
    for mark in WITHOUT_OBJECT:
        objects = objects.where(~functions.endswith("line", functions.lit(mark)))
    place = functions.struct("page", "slot")
    last = functions.max_by(functions.struct(*log.columns), place).alias("last")
    return objects.groupBy("type", "id").agg(last).select("last.*")
