"""
The dump as a table.

Nearly all lines are ordinary, and Spark takes these apart by itself (`fast_lines`). Every other
line, right or wrong, is read by the core's own function; so there is one truth about what is valid,
and most lines never wait for Python.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window
from tidings.core.errors import Rejected
from tidings.core.sync.dump import Described, End, read_line
from tidings.sync import fast_lines, schemas


def recognised(lines: DataFrame) -> DataFrame:
    """
    Place and text of each of *lines* (`schemas.LINES`), and of the ordinary ones key and moment:
    null for all others.
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
    """The lines that nobody recognised, with what the core says of them."""
    read = F.udf(_read, schemas.READ, useArrow=False)
    unknown = lines.where("key IS NULL").drop("key", "moment")
    return unknown.withColumn("read", read("text")).select(*unknown.columns, "read.*")


def described(lines: DataFrame, read: DataFrame) -> DataFrame:
    """The lines that say what an object is: those that were recognised, and of *read* the good."""
    columns = ["path", "block", "number", "text", "key", "moment"]
    recognised, good = (each.where("key IS NOT NULL").select(columns) for each in (lines, read))
    return recognised.unionByName(good)


def latest(lines: DataFrame) -> DataFrame:
    """
    The last line of each object: later files, and in a file later lines, win.

    Only the keys that come twice are sorted; they are found by a hash, which is a third of the
    work, and a hash that two keys share does no harm.
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
    """Those whose type is one of *types*, encoded as in a key; all where there are none."""
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
