"""
The offsets of a stream: cursors, each with the cursor at which the stream began.

The content of a batch depends only on its two offsets, so any process can read it again. Each
offset includes the beginning, because Spark requests it again until the first batch is done, and
`now` or a copy would give another one by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from tidings.core import limits
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, Place, Replication

At = Place | Replication
CURSOR, _BEGUN = "cursor", "begun"


@dataclass(frozen=True, slots=True)
class Offset:
    at: At
    begun: At

    def as_json(self) -> dict[str, str]:
        return {CURSOR: self.at.encode(), _BEGUN: self.begun.encode()}


@dataclass(frozen=True)
class Log(InputPartition):
    """The operations after *after* up to *last*: a batch, or the part of one task."""

    after: Place
    last: Place


@dataclass(frozen=True)
class Rows(InputPartition):
    """
    The buckets from that of *copy* to before *end*: a batch, or the part of one task.

    With *resets*, all earlier rows must be discarded, and the row `reset` comes first.
    """

    copy: Replication
    end: int
    resets: bool = False


def offset_from(stored: Mapping[str, str]) -> Offset:
    """Return the offset that `as_json` encoded."""
    at, begun = cursors.parse(stored[CURSOR]), cursors.parse(stored[_BEGUN])
    assert isinstance(at, Place | Replication) and isinstance(begun, Place | Replication)
    return Offset(at, begun)


def between(start: Offset, end: Offset) -> Log | Rows | None:
    """Return the content of a batch; None if it is empty."""
    at = start.at if start.begun == end.begun else end.begun
    if at == end.at:
        return None
    if isinstance(end.at, Place):
        return Log(in_log(at), end.at)
    goes_on = isinstance(at, Replication) and replace(at, bucket=end.at.bucket) == end.at
    first = at.bucket if goes_on and isinstance(at, Replication) else 0
    resets = not goes_on and end.at.since_s == 0
    return Rows(replace(end.at, bucket=first), end.at.bucket, resets)


def copying(at: At) -> bool:
    """Return True if the copy is incomplete."""
    return isinstance(at, Replication) and at.bucket < limits.BUCKETS


def in_log(at: At) -> Place:
    """Return the place where the log continues; after a copy, its second is that of `since_s`."""
    return at if isinstance(at, Place) else Place(at.page, PAGE_END, at.since_s)
