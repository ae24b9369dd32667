"""
The offsets of a stream: cursors, each with the one that the stream began with.

What lies between two offsets follows from the two alone, so that a batch can be read again in
any process. The beginning is in each of them, because Spark asks for it anew as long as the
first batch is not done, and `now` or a copy would begin elsewhere then.
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
    """The operations behind *after* up to *last*: of a batch, or of one of its tasks."""

    after: Place
    last: Place


@dataclass(frozen=True)
class Rows(InputPartition):
    """
    The buckets from that of *copy* to before *end*: of a batch, or of one of its tasks.

    *resets*: all that was told before is to be forgotten, and the row `reset` comes first.
    """

    copy: Replication
    end: int
    resets: bool = False


def offset_from(stored: Mapping[str, str]) -> Offset:
    """What `as_json` made."""
    at, begun = cursors.parse(stored[CURSOR]), cursors.parse(stored[_BEGUN])
    assert isinstance(at, Place | Replication) and isinstance(begun, Place | Replication)
    return Offset(at, begun)


def between(start: Offset, end: Offset) -> Log | Rows | None:
    """What a batch holds; None for nothing."""
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
    """Whether rows of the state are still to come."""
    return isinstance(at, Replication) and at.bucket < limits.BUCKETS


def in_log(at: At) -> Place:
    """Where the log goes on; of the end of a copy the second is since when it copied."""
    return at if isinstance(at, Place) else Place(at.page, PAGE_END, at.since_s)
