"""
What a read needs of a backend, whichever it is: HTTP, the tables of a feed, its archive.

A backend is made where a read is planned and sent to its tasks, so it holds no connection.
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
    *floor* is the first page that can be read, *frontier* the end of the last one.

    The state holds at least everything up to page *projected*.
    """

    floor: int
    frontier: Place
    projected: int


class Backend(Protocol):
    """The first five are called where a read is planned, the others by its tasks."""

    def ends(self) -> Ends: ...

    def end_of(self, page: int) -> Place | None:
        """The end of *page*, or of the next one that tells its time; None where there is none."""
        ...

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        """What lies behind *after* up to *last*, in about *count* pieces that follow each other."""
        ...

    def fallen(self, place: Place) -> Replication | Place:
        """What to copy where the log does not go on behind *place*; *place* where it does."""
        ...

    def lost(self, at: Replication | Place) -> bool:
        """Return True if a reader at *at* has seen pages that the feed lost (PROTOCOL 5.7)."""
        ...

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        """
        Whole pages, of which the first may begin and the last end beyond what is asked.

        Raises:
            Gone: not all of them are there.
        """
        ...

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        """
        The state from bucket `copy.bucket` to before *end*, as a copy tells it.

        Raises:
            Gone: the feed tells another copy.
        """
        ...


def even(after: Place, last: Place, count: int) -> list[Log]:
    """The pages behind *after* up to *last*, in *count* pieces at most, as even as they can be."""
    first = after.page if after.slot < PAGE_END else after.page + 1
    pages = last.page - first + 1
    if pages <= 0:
        return []
    pieces = min(count, pages)
    cuts = [first - 1 + pages * piece // pieces for piece in range(1, pieces)]
    return pieced(after, last, cuts)


def pieced(after: Place, last: Place, cuts: Sequence[int]) -> list[Log]:
    """The same, cut behind each page of *cuts*."""
    places = [after, *(Place(page, PAGE_END, 0) for page in cuts), last]
    return [Log(one, other) for one, other in pairwise(places) if one < other]


def within(pieces: Iterator[Piece], stretch: Log) -> Iterator[Piece]:
    """*pieces* of the log without what lies outside of *stretch*."""
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
