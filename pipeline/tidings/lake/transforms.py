"""From the entries of parts to operations in columns, and to the latest one of each object."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window
from tidings.sync.schemas import OPERATIONS, TEXT, TEXTS, columns

# In a string of JSON a quote is escaped, and `data` is the last key but for the mark of a change:
# so the first of these is where the data begin, and what stands before is parsed without them.
_DATA = ',"data":'
_MARK = ',"change":true}'
# What a line says, but for its data.
_HEAD = columns(
    event=TEXT, timestamp=TEXT, type=TEXT, id=TEXT, parents=TEXTS, tags=TEXTS, changed=TEXTS
)


def operations(entries: DataFrame) -> DataFrame:
    """`OPERATIONS` of `parts.ENTRIES`, each row by itself."""
    read = entries.select(
        "page",
        "slot",
        F.timestamp_millis("at_ms").alias("at"),
        F.format_string("%08x%010x%06x", F.expr("at_ms DIV 1000"), "page", "slot").alias("cursor"),
        F.from_json(_head(), _HEAD).alias("head"),
        _data().alias("data"),
        "line",
    )
    flat = read.select("*", "head.*").withColumn("timestamp", F.to_timestamp("timestamp"))
    return flat.select(*OPERATIONS.names)


def latest(rows: DataFrame) -> DataFrame:
    """The row of each object that stands last in the log; changes have no object."""
    whole = F.struct(*OPERATIONS.names)
    last = F.max_by(whole, F.struct("page", "slot")).alias("last")
    objects = rows.where(~is_change())
    return objects.groupBy("type", "id").agg(last).select("last.*")


def flagged(entries: DataFrame, *, changes: bool) -> DataFrame:
    """
    Part, page, slot and size of each entry, and whether it is *left*: the last one of its object.

    *changes*: those are left too. The parts of *entries* may overlap.
    """
    head = F.from_json(_head(), "type STRING, id STRING")
    read = entries.select(
        "part",
        "page",
        "slot",
        F.octet_length("line").alias("size"),
        is_change().alias("change"),
        head["type"].alias("type"),
        head["id"].alias("id"),
    )
    at = F.struct("page", "slot")
    last = at == F.max(at).over(Window.partitionBy("change", "type", "id"))
    # What cannot be read has no object that we know, so it is nobody's earlier operation.
    unread = F.col("id").isNull() | F.col("type").isNull()
    left = F.when(F.col("change"), F.lit(changes)).otherwise(unread | last)
    return read.select("part", "page", "slot", "size", left.alias("left"))


def is_change() -> Column:
    return F.col("line").endswith(_MARK)


def _head() -> Column:
    begins = F.instr("line", _DATA)
    cut = F.concat(F.col("line").substr(F.lit(1), begins - 1), F.lit("}"))
    return F.when(begins > 0, cut).otherwise(F.col("line"))


def _data() -> Column:
    """What an operation carries as `data`, as JSON; null without it."""
    begins = F.instr("line", _DATA)
    behind = F.when(is_change(), F.lit(len(_MARK))).otherwise(F.lit(1))
    first = begins + len(_DATA)
    text = F.col("line").substr(first, F.length("line") - behind - first + 1)
    return F.when(begins > 0, text)
