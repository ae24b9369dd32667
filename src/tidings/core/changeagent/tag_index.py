"""The tag index shows which pages may have entries with a tag. Readers skip all other pages.

A summary is a Bloom filter over the tags of consecutive pages. It depends only on these pages, so
that concurrent and repeated runs write the same summaries. Readers read all pages that have no
summary.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.changeagent.changes import tags_of
from tidings.core.log.due import NEXT_SWEEP
from tidings.core.log.reader import PagesLost

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tidings.core.effects import Clock
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page


class TagStore(Protocol):
    """The store of summaries of pages."""

    def write(self, feed: str, summaries: Sequence[Summary]) -> None:
        """Store *summaries*; replace stored summaries that end at the same pages."""

    def read(self, feed: str, after: int, limit: int) -> list[Summary]:
        """Return the summaries that end after page *after*, at most *limit* and about 1 MB.

        The read is eventually consistent. The expiry times are not read: `expires_ms` is always 0.
        """

    def last(self, feed: str) -> int:
        """Return the last page that a summary covers, or 0 before the first summary."""


_PROBES = 8  # the number of bits that a tag sets; the optimum for a filter with 12 bits per tag


@dataclass(frozen=True, slots=True)
class Summary:
    """The tags of the pages *first* to *last*, as a Bloom filter in *bits*."""

    first: int
    last: int
    bits: bytes
    expires_ms: int = 0

    def may_hold(self, tags: Iterable[str]) -> bool:
        """Return False only if no entry of these pages has one of *tags*."""
        wanted = (_bits_of(tag, 8 * len(self.bits)) for tag in tags)
        return any(all(self.bits[bit >> 3] & 1 << (bit & 7) for bit in bits) for bits in wanted)


def summary_of(pages: Sequence[Page], tags: Collection[str], *, page_ms: int) -> Summary:
    """Return the summary of *pages*, which have these *tags*."""
    bits = bytearray(-(-max(1, len(tags)) * limits.SUMMARY_BITS // 8))
    for tag in tags:
        for bit in _bits_of(tag, 8 * len(bits)):
            bits[bit >> 3] |= 1 << (bit & 7)
    last = pages[-1]
    return Summary(pages[0].number, last.number, bytes(bits), last.at_ms + page_ms)


def summed_up(pages: Iterable[Page], *, page_ms: int, all_of_it: bool) -> Iterator[Summary]:
    """Yield full summaries of consecutive *pages*; with *all_of_it*, also a summary of the rest."""
    group: list[Page] = []
    tags: set[str] = set()
    for page in pages:
        group.append(page)
        for line in page.lines:
            tags.update(tags_of(line))
        if len(group) >= limits.SUMMARY_PAGES or len(tags) >= limits.SUMMARY_TAGS:
            yield summary_of(group, tags, page_ms=page_ms)
            group, tags = [], set()
    if group and all_of_it:
        yield summary_of(group, tags, page_ms=page_ms)


def _bits_of(tag: str, size: int) -> Iterator[int]:
    digest = blake2b(tag.encode(), digest_size=16).digest()
    at, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
    return ((at + probe * step) % size for probe in range(_PROBES))


@dataclass(frozen=True, slots=True)
class Indexer:
    """The writer of summaries for new pages. Concurrent runs write the same summaries."""

    store: TagStore
    reader: Reader
    steady: Clock
    page_ms: int

    def run(self, feed: str, until_ms: int | None = None) -> int:
        """Write summaries of new pages; return the last page up to which all pages were handled.

        End at *until_ms* on the clock `steady`; if *until_ms* is None, end after
        `limits.INDEX_RUN_MS`.
        """
        until = until_ms or self.steady() + limits.INDEX_RUN_MS
        after, more = max(self.store.last(feed), self.reader.log.floor(feed) - 1), True
        while more and self.steady() < until:
            try:
                run = self.reader.read(feed, after)
            except PagesLost as lost:
                after = lost.beyond - 1
                continue
            summaries = list(summed_up(run.pages, page_ms=self.page_ms, all_of_it=run.more))
            self.store.write(feed, summaries)
            after = summaries[-1].last if summaries else max(after, run.floor - 1)
            more = run.more or run.trimmed
        return after


@dataclass(frozen=True, slots=True)
class IndexMonitor:
    """The monitor that calls *wake* with each feed that has pages without a summary."""

    store: TagStore
    wake: Callable[[str], object]
    clock: Clock

    def run(self, feed: str, *, head: int) -> int | None:
        """Wake the indexer if there are enough pages without a summary to fill a summary.

        If there are fewer, wake the indexer only once in `limits.INDEX_EVERY` sweeps. No reader
        waits for a summary, because pages without a summary are read from the log. Return the time
        of the next visit; a few pages need none.
        """
        waiting = head - self.store.last(feed)
        turn = self.clock() // limits.SWEEP_EVERY_MS % limits.INDEX_EVERY
        if waiting >= limits.SUMMARY_PAGES or (waiting > 0 and turn == 0):
            self.wake(feed)
        return NEXT_SWEEP if waiting >= limits.SUMMARY_PAGES else None
