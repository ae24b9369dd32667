"""
The interface of a backend for reads: HTTP, the tables of a feed, or its archive.

A backend is created by the planner of a read and sent to its tasks, so it has no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.spark.columns import Piece
from tidings.spark.offsets import Log


@dataclass(frozen=True, slots=True)
class Ends:
    """
    The range of a feed: *floor* is the first readable page, *frontier* the end of the last one.

    The state includes at least everything up to page *projected*.
    """

    floor: int
    frontier: Place
    projected: int


class Backend(Protocol):
    """
    A way to read a feed. The planner of a read calls the first five methods, its tasks the others.
    """

    def ends(self) -> Ends: ...

    def end_of(self, page: int) -> Place | None:
        """
        Return the end of *page*, or of the next page with a known time; None if neither exists.
        """
        ...

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        """Return the log after *after* up to *last*, in about *count* consecutive pieces."""
        ...

    def fallen(self, place: Place) -> Replication | Place:
        """Return the copy to read if the log was trimmed after *place*; else *place*."""
        ...

    def lost(self, at: Replication | Place) -> bool:
        """Return True if a reader at *at* has seen pages that the feed lost (PROTOCOL 5.7)."""
        ...

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        """
        Yield whole pages; the first may begin before the range, and the last end after it.

        Raises:
            Gone: a page is missing.
        """
        ...

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        """
        Yield the state from bucket `copy.bucket` to before *end*, as in a copy.

        Raises:
            Gone: the feed sends another copy.
        """
        ...


def even(after: Place, last: Place, count: int) -> list[Log]:
    """Return the pages after *after* up to *last*, in at most *count* pieces of similar size."""
    first = after.page if after.slot < PAGE_END else after.page + 1
    pages = last.page - first + 1
    if pages <= 0:
        return []
    pieces = min(count, pages)
    cuts = [first - 1 + pages * piece // pieces for piece in range(1, pieces)]
    return pieced(after, last, cuts)


def pieced(after: Place, last: Place, cuts: Sequence[int]) -> list[Log]:
    """Return the pages after *after* up to *last*, cut after each page of *cuts*."""
    places = [after, *(Place(page, PAGE_END, 0) for page in cuts), last]
    return [Log(one, other) for one, other in pairwise(places) if one < other]


def within(pieces: Iterator[Piece], stretch: Log) -> Iterator[Piece]:
    """Yield *pieces* of the log without entries outside of *stretch*."""
    after, last = stretch.after, stretch.last
    for piece in pieces:
        assert piece.pages is not None and piece.slots is not None
        if after.page < piece.pages[0] and piece.pages[-1] < last.page:
            yield piece
            continue
        places = list(zip(piece.pages, piece.slots, strict=True))
        low, high = (after.page, after.slot), (last.page, last.slot)
        kept = [at for at, place in enumerate(places) if low < place <= high]
        if kept:
            yield _cut(piece, kept[0], kept[-1] + 1)


def _cut(piece: Piece, first: int, end: int) -> Piece:
    assert piece.pages is not None and piece.slots is not None and piece.at_ms is not None
    return replace(
        piece,
        lines=piece.lines[first:end],
        pages=piece.pages[first:end],
        slots=piece.slots[first:end],
        at_ms=piece.at_ms[first:end],
    )
