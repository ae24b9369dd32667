"""
Compare dump and state with one full outer join, by hash, without a sort.

The rules are those of `tidings.core.sync.dumps`; tests compare the two.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidings.core.model import timestamps
from tidings.core.sync.dumps import moment
from tidings.core.sync.watermark import Moment, Reached, Watermark


def judged(rows: DataFrame, watermark: Watermark) -> DataFrame:
    """Return *rows* (`schemas.ROWS`) with *later* set for those that changed after *watermark*."""
    return rows.withColumn("later", _later(watermark)).drop("committed")


def compared(dump: DataFrame, rows: DataFrame, *, deletes: bool = True) -> DataFrame:
    """
    Return every object with its *event*: insert, update, delete, or null if it needs no change.

    *dump* has one line for each object, and *rows* come from `judged`. *text* is the line of the
    dump, or for a delete that of the state. *at* is the position of the object's row, or empty if
    it has no row.
    """
    described = dump.select("key", F.col("moment").alias("dump_moment"), "text")
    known = rows.select("key", "at", "deleted", "later", "moment", F.col("line").cast("binary"))
    joined = described.join(known.hint("shuffle_hash"), "key", "full_outer")
    event = F.when(F.col("later"), F.lit(None)).when(F.col("dump_moment").isNotNull(), _event())
    if deletes:
        event = event.when(~F.col("deleted"), "delete")
    return joined.select(
        "key",
        event.alias("event"),
        F.coalesce("text", "line").alias("text"),
        F.coalesce("at", F.lit("")).alias("at"),
        F.coalesce("deleted", F.lit(False)).alias("deleted"),
    )


def _later(watermark: Watermark) -> Column:
    """Return whether a row changed after *watermark*; True if the time of its change is unknown."""
    match watermark:
        case Reached(position):
            later = F.col("at") > position.encode()
        case Moment(ms):
            later = F.col("committed") >= ms
        case newest:
            later = F.col("moment") >= moment(timestamps.from_ms(newest.ms))
    return F.coalesce(later, F.lit(True))


def _event() -> Column:
    """Return the event that makes the state agree with an object of the dump."""
    return (
        F.when(F.col("moment").isNull(), "insert")
        .when(F.col("dump_moment") <= F.col("moment"), F.lit(None))
        .when(F.col("deleted"), "insert")
        .otherwise("update")
    )
