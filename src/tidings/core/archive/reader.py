"""Read from the archive the pages after a position, up to the first gap.

A gap is a range of pages that no part has. Parts may overlap, and may be compacted or merged while
they are read. Listings and parts that were read earlier stay valid, because all parts that have a
page have the same entries for it, except for entries that compaction removed and entries that were
erased.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import are_complete, decode
from tidings.core.effects import is_ahead
from tidings.core.errors import BrokenPart, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.archive.segments import ArchiveStore, Span
    from tidings.core.effects import Clock, Count
    from tidings.core.model.pages import Page


def never_aging() -> int:
    """Implement `Clock` for a process that ends soon: a cached part never becomes too old."""
    return 0


@dataclass(slots=True)
class ArchiveReader:
    """A reader that caches the last listing of each feed, and the last part that was read.

    The part is read again after `limits.ARCHIVE_CACHE_MS` by *aging*, because an erasure may have
    changed it.
    """

    store: ArchiveStore
    count: Count
    aging: Clock = never_aging
    _listed: dict[str, Sequence[Span]] = field(default_factory=dict)
    _recent: tuple[str, Span, Sequence[Page], int] | None = None

    def forget(self) -> None:
        """Discard the cached part."""
        self._recent = None

    def read(self, feed: str, after: int, until: int) -> Sequence[Page]:
        """Return consecutive pages that follow page *after*, up to page *until* at most.

        Return no pages if the page after *after* is missing.
        """
        pages: list[Page] = []
        size = 0
        for page in self._part(feed, after + 1) if after < until else ():
            if after < page.number <= until and size < limits.ARCHIVE_STEP_BYTES:
                pages.append(page)
                size += len(page.text)
        return pages

    def at(self, feed: str, number: int) -> Page | None:
        """Return page *number* (it may be compacted), or None if the archive does not have it."""
        pages = self.read(feed, number - 1, number) if number > 0 else ()
        return pages[0] if pages else None

    def reaches(self, feed: str, after: int, until: int) -> bool:
        """Return True if every page after *after* up to *until* is in the archive.

        Check at most `limits.ARCHIVE_LISTS_MAX` listings. A gap after the pages in these listings
        is found only when the pages are read.
        """
        for _ in range(limits.ARCHIVE_LISTS_MAX):
            if after >= until:
                return True
            reached = covered_page(self._list(feed, after), after)
            if reached == after:
                return False
            after = reached
        return True

    def begins(self, feed: str, until: int) -> int:
        """Return the first page from which the archive has all pages up to *until*.

        Return `until + 1` if the archive does not have page *until*.
        """
        first = until + 1
        for span in sorted(all_spans(self.store, feed), reverse=True):
            if span.last >= first - 1:
                first = min(first, span.first)
        return first

    def _part(self, feed: str, number: int) -> Sequence[Page]:
        """Return the pages of a part that has page *number*, or no pages if no part has it."""
        recent = self._recent
        if (
            recent is not None
            and recent[0] == feed
            and recent[1].holds(number)
            and is_ahead(recent[3], self.aging(), limits.ARCHIVE_CACHE_MS)
        ):
            return recent[2]
        for span in self._holders(feed, number):
            pages = self._read(feed, span)
            if pages:
                self._recent = feed, span, pages, self.aging() + limits.ARCHIVE_CACHE_MS
                return pages
        return ()

    def _holders(self, feed: str, number: int) -> Iterator[Span]:
        """Yield the parts that should have page *number*, by the cached, then by a new listing."""
        yield from (span for span in self._listed.get(feed, ()) if span.holds(number))
        yield from (span for span in self._list(feed, number - 1) if span.holds(number))

    def _list(self, feed: str, after: int) -> Sequence[Span]:
        spans = self.store.list(feed, after, limits.ARCHIVE_LISTED)
        self._listed[feed] = spans
        return spans

    def _read(self, feed: str, span: Span) -> Sequence[Page]:
        """Return the pages of the part *span*; no pages if the part was removed or is broken."""
        try:
            body = self.store.get(feed, span)
            if body is None:
                return ()
            pages = decode(body)
        except (BrokenPart, TooLarge):
            pages = []
        if not are_complete(pages, span):
            self.count("PartsBroken", 1)
            return ()
        return pages


def all_spans(store: ArchiveStore, feed: str, after: int = 0) -> Iterator[Span]:
    """Yield the parts that end after page *after*.

    If a listing is full, more parts may end with the same page as its last part. All parts that end
    with this page are therefore read with the next listing.
    """
    while spans := store.list(feed, after, limits.ARCHIVE_LISTED):
        cut = len(spans) == limits.ARCHIVE_LISTED and spans[0].last < spans[-1].last
        after = spans[-1].last - 1 if cut else spans[-1].last
        yield from (span for span in spans if span.last <= after)


def holes(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Return the first and last page of each gap between *spans*."""
    gaps: list[tuple[int, int]] = []
    last = 0
    for span in sorted(spans, key=lambda each: each.first):
        if last and span.first > last + 1:
            gaps.append((last + 1, span.first - 1))
        last = max(last, span.last)
    return gaps


def covered_page(spans: Sequence[Span], after: int) -> int:
    """Return the last page before the first gap that *spans* have after page *after*.

    Return *after* itself if *spans* do not have the next page. *spans* must be in order.
    """
    for span in spans:
        if span.first <= after + 1:
            after = max(after, span.last)
    return after
