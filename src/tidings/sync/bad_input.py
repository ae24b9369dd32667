"""Report bad lines of a dump by file, number and reason, and files that Spark cannot read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

_LOCAL = re.compile(r"^file:/+")  # Hadoop converts every path to an address
# The formats in which Spark names the file that failed, and Java the reason.
_FILE = re.compile(r"error while reading file (\S+)\.\s")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
CUT = "Unexpected end of input stream"  # Java's message for truncated gzip data
GZIP = ".gz"
_FIRST = Window.unboundedPreceding
SHOWN_MAX = 10  # the first ones show the problem; a list of thousands hides it


@dataclass(frozen=True, slots=True)
class BadLine:
    path: str
    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}"


def first(bad: DataFrame, lines: DataFrame) -> list[BadLine]:
    """
    Return the first of the *bad* lines.

    Splits of a file are read in parallel. The number of a line is therefore computed here, from the
    number of lines in each split before it.
    """
    wanted = bad.orderBy("path", "block", "number").limit(SHOWN_MAX)
    splits = lines.groupBy("path", "block").agg(F.min("number").alias("start"), F.count("*"))
    earlier = Window.partitionBy("path").orderBy("block").rowsBetween(_FIRST, -1)
    before = F.coalesce(F.sum("count(1)").over(earlier), F.lit(0))
    placed = wanted.join(splits.withColumn("before", before), ["path", "block"])
    at = F.col("number") - F.col("start") + F.col("before") + 1
    rows = placed.orderBy("path", "block", "number").select("path", at, "error").collect()
    return [BadLine(shown(path), number, error) for path, number, error in rows]


def shown(path: str) -> str:
    """Return *path* as people write it."""
    return unquote(_LOCAL.sub("/", path))


class BadFile(Exception):
    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        rule = f"what ends in {GZIP} must be gzip" if path.endswith(GZIP) else "cannot be read"
        super().__init__(f"{path}: {rule}: {reason}")

    def with_names(self, names: Mapping[str, str]) -> BadFile:
        """Return the same error, with the original name instead of the name of a copy."""
        return BadFile(names.get(self.path, self.path), self.reason)


def is_cut(message: str) -> bool:
    """Return True if Spark failed because gzip data are truncated."""
    return CUT in message


def worded(path: str, error: Exception) -> str:
    """Return Spark's message for a *path* that cannot be read."""
    reason = "not a gzip file" if str(error).startswith("Not a gzipped file") else str(error)
    return f"error while reading file {quote(path)}. \nCaused by: {type(error).__name__}: {reason}"


def named(message: str) -> BadFile | None:
    """Return the file that Spark failed on, or None if the error has another cause."""
    file, causes = _FILE.search(message), _CAUSE.findall(message)
    return BadFile(shown(file[1]), causes[-1]) if file and causes else None
