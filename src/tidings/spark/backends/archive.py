"""Read the archive of a feed, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidings.aws.archives import holding
from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.archive.reader import all_spans
from tidings.core.archive.segments import ArchiveStore
from tidings.core.model.cursors import PAGE_END, START, Place, Replication
from tidings.core.model.pages import Page
from tidings.http.settings import WrongArchive
from tidings.spark.backends.backend import Ends, even, pieced
from tidings.spark.columns import Piece, of_page
from tidings.spark.errors import Gone, WrongOption
from tidings.spark.offsets import Log
from tidings.spark.options import Where

_LOOKS = 3  # attempts with a list of parts that were compacted while they were read


@dataclass(frozen=True, slots=True)
class ArchiveBackend:
    """Implements `Backend`, except for the state."""

    where: Where

    def ends(self) -> Ends:
        first, last = self.span()
        return Ends(first, self.end_of(last) or START, projected=0)

    def span(self) -> tuple[int, int]:
        """Return the first page, and the last one before a gap."""
        first, last = 0, 0
        for span in all_spans(self._store(), self.where.feed):
            first = min(first, span.first) if first else span.first
            if span.first <= last + 1 or not last:
                last = span.last
        return first, last

    def first(self) -> int:
        """Return the first page."""
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
        return pieced(after, last, sorted(ends))

    def fallen(self, place: Place) -> Replication | Place:
        raise Gone(f"the archive does not go on behind page {place.page}, and has no state")

    def lost(self, at: Replication | Place) -> bool:
        """Return False: the archive has the same pages as the feed, as a restore truncates it."""
        return False

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
        """
        Yield the archived content of each page after *after* up to *last*.

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
                yield from self._wanted(body, done, last)
                done = span.last
            looks = looks + 1 if done == after else 0
            if looks == _LOOKS:
                raise Gone(f"page {after + 1} is not in the archive")
            after = done

    def _wanted(self, body: bytes, after: int, last: int) -> Iterator[Page]:
        for page in segments.decode(body):
            if not after < page.number <= last:
                continue
            if page.compacted and not self.where.takes_compacted:
                rule = "was compacted; with the option compacted=take what is left of it is read"
                raise Gone(f"page {page.number} {rule}")
            yield page

    def _store(self) -> ArchiveStore:
        """
        Open the archive.

        Raises:
            WrongOption: it has nothing of the feed, so the address is wrong.
        """
        try:
            return holding(self.where.archive, self.where.feed, self._objects)
        except WrongArchive as error:
            raise WrongOption("archive", str(error)) from None

    def _objects(self) -> Any:
        import boto3  # noqa: TID251 the job's own role, not a function's

        return boto3.client("s3", region_name=self.where.region or None)
