"""
Read the dump as a table.

Spark parses ordinary lines, nearly all of them, by itself (`fast_lines`). Every other line, valid
or not, is read by the core's own function. Validity is therefore defined only once, and most lines
need no Python.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tidings.core.errors import Rejected
from tidings.core.sync.dumps import Described, End, read_line
from tidings.sync import fast_lines, schemas


def recognised(lines: DataFrame) -> DataFrame:
    """
    Return place and text of each of *lines* (`schemas.LINES`), with key and moment.

    Key and moment are null for all lines that are not ordinary.
    """
    head = lines.select("value").head()
    apart = fast_lines.taken_apart(fast_lines.order_of(head["value"]) if head else ())
    key, moment = fast_lines.key_and_moment()
    return lines.withColumn("apart", apart).select(
        "path",
        "block",
        "number",
        "text",
        key.alias("key"),
        moment.alias("moment"),
    )


def asked_core(lines: DataFrame) -> DataFrame:
    """Return the lines that were not recognised, with the result of the core for each."""
    read = F.udf(_read, schemas.READ, useArrow=False)
    unknown = lines.where("key IS NULL").drop("key", "moment")
    return unknown.withColumn("read", read("text")).select(*unknown.columns, "read.*")


def described(lines: DataFrame, read: DataFrame) -> DataFrame:
    """
    Return the lines that describe an object: the recognised ones, and the valid ones of *read*.
    """
    columns = ["path", "block", "number", "text", "key", "moment"]
    recognised, good = (each.where("key IS NOT NULL").select(columns) for each in (lines, read))
    return recognised.unionByName(good)


def latest(lines: DataFrame) -> DataFrame:
    """
    Return the last line of each object: later files, and later lines in a file, win.

    Only repeated keys are sorted. They are found by a hash, which takes a third of the time. A hash
    collision does no harm.
    """
    hashed = lines.withColumn("hash", hash_of_key())
    repeated = hashed.groupBy("hash").count().where("count > 1").select("hash")
    twice = hashed.join(repeated, "hash", "left_semi")
    last_first = Window.partitionBy("key").orderBy(
        F.desc("path"), F.desc("block"), F.desc("number")
    )
    last = twice.withColumn("rank", F.row_number().over(last_first)).where("rank = 1").drop("rank")
    once = hashed.join(repeated, "hash", "left_anti")
    return once.unionByName(last).drop("hash")


def hash_of_key() -> Column:
    return F.xxhash64("key")


def of_types(table: DataFrame, types: frozenset[str]) -> DataFrame:
    """Return the rows of *types*, encoded as in a key; all rows if *types* is empty."""
    return table.where(is_of(types)) if types else table


def is_of(types: frozenset[str]) -> Column:
    if not types:
        return F.lit(True)
    return F.substring_index("key", "/", 1).isin(*sorted(types))


def _read(text: bytearray) -> tuple[str | None, str | None, int | None, str | None]:
    try:
        line = read_line(bytes(text))
    except Rejected as error:
        return None, None, None, str(error)
    match line:
        case Described():
            return line.key, line.moment, None, None
        case End():
            return None, None, line.lines, None
    return None, None, None, None
