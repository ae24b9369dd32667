"""The interface of the backends of a read, and the backend that reads an archive.

Other backends read over HTTP, and from the tables of a deployment. The planner of a read creates a
backend and sends it to the tasks, so a backend keeps no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from tidings.aws.archives import holding
from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import ArchiveStore
from tidings.core.model.cursors import PAGE_END, START, Place, Replication
from tidings.core.model.pages import Page
from tidings.http.settings import WrongArchive
from tidings.spark.columns import Piece, of_page
from tidings.spark.options import Gone, Log, Where, WrongOption

if TYPE_CHECKING:
    from tidings.spark.options import Where


@dataclass(frozen=True, slots=True)
class Ends:
    """The range of a feed: *floor* is its first readable page, *frontier* the end of the last one.

    The state includes at least all pages up to *projected*.
    """

    floor: int
    frontier: Place
    projected: int


class Backend(Protocol):
    """A way to read a feed. The planner calls the first five methods, the tasks call the others."""

    def ends(self) -> Ends: ...

    def end_of(self, page: int) -> Place | None:
        """Return the end of *page*, or of the next page that can be read; None if there is none."""

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        """Divide `Log(after, last)` into about *count* consecutive pieces."""

    def place_or_copy(self, place: Place) -> Replication | Place:
        """Return *place*, or the copy of the state to read if pages after *place* were removed."""

    def is_lost(self, at: Replication | Place) -> bool:
        """Return True if a reader at *at* has seen pages that the feed lost (PROTOCOL 5.7)."""

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        """Yield whole pages. The first may begin before *after*, and the last may end after *last*.

        Raises:
            Gone: a page is missing.
        """

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        """Yield the rows of *copy* in the buckets from `copy.bucket` up to and without *end*.

        Raises:
            Gone: a row cannot be read, or the feed has started a new copy.
        """


def even(after: Place, last: Place, count: int) -> list[Log]:
    """Divide `Log(after, last)` into at most *count* pieces of similar length."""
    first = after.page if after.slot < PAGE_END else after.page + 1
    pages = last.page - first + 1
    if pages <= 0:
        return []
    pieces = min(count, pages)
    cuts = [first - 1 + pages * piece // pieces for piece in range(1, pieces)]
    return cut_log(after, last, cuts)


def cut_log(after: Place, last: Place, cuts: Sequence[int]) -> list[Log]:
    """Divide `Log(after, last)`, with a cut after each page in *cuts*."""
    places = [after, *(Place(page, PAGE_END, 0) for page in cuts), last]
    return [Log(one, other) for one, other in pairwise(places) if one < other]


def within(pieces: Iterator[Piece], stretch: Log) -> Iterator[Piece]:
    """Yield *pieces* of the log, without the operations outside *stretch*."""
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


# The next page counts as missing after this number of consecutive listings without it. Compaction
# may remove parts after they were listed and before they are read.
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class ArchiveBackend:
    """Implements `Backend`, except for the state."""

    where: Where

    def ends(self) -> Ends:
        first, last = self.span()
        return Ends(first, self.end_of(last) or START, projected=0)

    def span(self) -> tuple[int, int]:
        """Return the first page of the archive, and the last page before its first gap."""
        first, last = 0, 0
        for span in all_spans(self._store(), self.where.feed):
            first = min(first, span.first) if first else span.first
            if span.first <= last + 1 or not last:
                last = span.last
        return first, last

    def first(self) -> int:
        """Return the first page of the archive, which must not be empty."""
        listed = self._store().list(self.where.feed, 0, limits.ARCHIVE_LISTED)
        return min(span.first for span in listed)

    def end_of(self, page: int) -> Place | None:
        first = next(self.pages(page - 1, page), None) if page > 0 else None
        return first.end if first else None

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        """Cut at the ends of parts, so that each part is read by one task."""
        store = self._store()
        ends: set[int] = set()
        for stretch in even(after, last, count)[:-1]:
            spans = store.list(self.where.feed, stretch.last.page - 1, 1)
            ends.update(span.last for span in spans if after.page < span.last < last.page)
        return cut_log(after, last, sorted(ends))

    def place_or_copy(self, place: Place) -> Replication | Place:
        raise Gone(f"the archive does not continue after page {place.page}, and has no state")

    def is_lost(self, at: Replication | Place) -> bool:
        """Return True if a restore, which began a generation of the archive, lost *at*."""
        generations = self._store().generations(self.where.feed).values()
        return any(each.kept < at.page <= each.last for each in generations)

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        first = after.page if after.slot < PAGE_END else after.page + 1
        for page in self.pages(first - 1, last.page):
            if page.lines:
                yield of_page(page)

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        raise WrongOption(
            "what", "state is not in the archive; give url, stage, tables or endpoint"
        )

    def pages(self, after: int, last: int) -> Iterator[Page]:
        """Yield the archived pages from *after* + 1 to *last*.

        Raises:
            Gone: a page is missing, or was compacted and `compacted=take` is not set.
        """
        store, looks = self._store(), 0
        while after < last:
            done = after
            for span in store.list(self.where.feed, after, limits.ARCHIVE_LISTED):
                if not (span.first <= done + 1 and done < span.last) or done >= last:
                    continue
                body = store.get(self.where.feed, span)
                if body is None:
                    break
                yield from self._pages(body, done, last)
                done = span.last
            looks = looks + 1 if done == after else 0
            if looks == _LOOKS:
                raise Gone(f"page {after + 1} is not in the archive")
            after = done

    def _pages(self, body: bytes, after: int, last: int) -> Iterator[Page]:
        for page in segments.decode(body):
            if not after < page.number <= last:
                continue
            if page.compacted and not self.where.takes_compacted:
                rule = "was compacted; the option compacted=take reads its remaining operations"
                raise Gone(f"page {page.number} {rule}")
            yield page

    def _store(self) -> ArchiveStore:
        try:
            return holding(self.where.archive, self.where.feed, self._objects)
        except WrongArchive as error:
            raise WrongOption("archive", str(error)) from None

    def _objects(self) -> Any:
        import boto3  # noqa: TID251 uses the role of the Spark job, not that of a function

        return boto3.client("s3", region_name=self.where.region or None)
