"""Report bad lines of a dump by file, number and reason, and files that Spark cannot read."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tidings.core.sync.safety import Objection
from tidings.sync import files

_LOCAL = re.compile(r"^file:/+")  # Hadoop converts every path to an address
# The formats in which Spark names the file that failed, and Java the reason.
_FILE = re.compile(r"error while reading file (\S+)\.\s")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
CUT = "Unexpected end of input stream"  # Java's message for truncated gzip data
GZIP = ".gz"
_FIRST = Window.unboundedPreceding
SHOWN_MAX = 10  # the first ones show the problem; a list of thousands hides it
_READ_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class BadLine:
    path: str
    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}"


class BadDump(Exception):
    """More lines are invalid than may be skipped; the first of them are listed."""

    def __init__(self, count: int, first: list[BadLine]) -> None:
        self.count, self.first = count, first
        super().__init__(f"{count:,} bad line{'s' if count != 1 else ''}")


class BadFile(Exception):
    """A file of the dump cannot be read; *line* is the first line that is incomplete, if known."""

    def __init__(self, path: str, reason: str, line: int | None = None) -> None:
        self.path, self.line = path, line
        self.is_cut = CUT in reason
        rule = f"what ends in {GZIP} must be gzip" if path.endswith(GZIP) else "cannot be read"
        super().__init__(f"{path}{f':{line}' if line else ''}: {rule}: {reason}")

    def objection(self) -> Objection:
        """Return the objection to a dump whose gzip data are truncated."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        sentence = f"the dump ends early: the gzip data of {where} are cut off"
        return Objection("truncated_dump", sentence)


def first(bad: DataFrame, lines: DataFrame, names: Mapping[str, str]) -> list[BadLine]:
    """
    Return the first of the *bad* lines. *names* are the originals of copied files.

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
    return [
        BadLine(names.get(shown(path), shown(path)), number, error) for path, number, error in rows
    ]


def shown(path: str) -> str:
    """Return *path* as people write it."""
    return unquote(_LOCAL.sub("/", path))


def worded(path: str, error: Exception) -> str:
    """Return Spark's message for a *path* that cannot be read."""
    reason = "not a gzip file" if str(error).startswith("Not a gzipped file") else str(error)
    if isinstance(error, EOFError):
        reason = CUT
    return f"error while reading file {quote(path)}. \nCaused by: {type(error).__name__}: {reason}"


def named(message: str, names: Mapping[str, str]) -> BadFile | None:
    """
    Return the file that Spark failed on, or None if the error has another cause.

    *names* are the originals of copied files.
    """
    file, causes = _FILE.search(message), _CAUSE.findall(message)
    if not file or not causes:
        return None
    path = shown(file[1])
    line = _broken_line(path) if path.endswith(GZIP) else None
    return BadFile(names.get(path, path), CUT if CUT in message else causes[-1], line)


def _broken_line(address: str) -> int | None:
    """Return the number of the line in which gzip data break; None if they do before a line."""
    with files.opened(address) as raw:
        unpacked, line = gzip.GzipFile(fileobj=raw), 0
        try:
            while text := unpacked.read1(_READ_BYTES):
                line = max(line, 1) + text.count(b"\n")
        except (OSError, EOFError):
            return line or None
        except zlib.error:  # some kilobytes before it are not returned
            return None
    return None
