"""Bad lines by file, number and reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOCAL = re.compile(r"^file:/+")  # Hadoop makes an address of every path
SHOWN_MAX = 10  # the first ones tell what is wrong; a list of thousands hides it


@dataclass(frozen=True, slots=True)
class BadLine:
    path: str
    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}"


def first(bad: DataFrame, lines: DataFrame) -> list[BadLine]:
    """
    The first of *bad*. Splits of a file are read side by side, so that the number of a line is
    known only here, from how many lines each split before it has.
    """
    wanted = bad.orderBy("path", "block", "number").limit(SHOWN_MAX)
    found = wanted.select("path", "block", "number", "error").collect()
    of_these = lines.where(F.col("path").isin(*{row["path"] for row in found}))
    splits = of_these.groupBy("path", "block").agg(F.min("number"), F.count("*"))
    before = _before(sorted(tuple(row) for row in splits.collect()))
    return [
        BadLine(shown(path), number - before[path, block] + 1, error)
        for path, block, number, error in found
    ]


def _before(splits: list[tuple[str, int, int, int]]) -> dict[tuple[str, int], int]:
    """For each split what is to be taken from a line's number to get its place in the file."""
    taken: dict[tuple[str, int], int] = {}
    lines_before: dict[str, int] = {}
    for path, block, start, count in splits:
        taken[path, block] = start - lines_before.get(path, 0)
        lines_before[path] = lines_before.get(path, 0) + count
    return taken


def shown(path: str) -> str:
    """As a person would name it."""
    return unquote(_LOCAL.sub("/", path))
