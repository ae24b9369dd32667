"""
The index of tags: which pages may hold entries with a tag, so that the others are not read.

A summary says of some pages that follow each other which tags are not on them (a Bloom filter).
It is made of pages alone, so that it is the same whoever makes it and however often. Pages
without one are read: absence is never read as "nothing there".
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.changeagent.changes import tags_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tidings.core.model.pages import Page

_PROBES = 8  # what suits 12 bits a tag


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the pages *first* to *last*; *bits* is the filter."""

    first: int
    last: int
    bits: bytes
    expires_ms: int = 0

    def may_hold(self, tags: Iterable[str]) -> bool:
        """False only where no entry of these pages has one of *tags*."""
        return any(all(self._has(place) for place in self._places(tag)) for tag in tags)

    def _places(self, tag: str) -> Iterator[int]:
        return _places(tag, 8 * len(self.bits))

    def _has(self, place: int) -> bool:
        return bool(self.bits[place >> 3] & 1 << (place & 7))


def summary_of(pages: Sequence[Page], tags: Collection[str], *, page_ms: int) -> Summary:
    """The summary of *pages*, whose tags are *tags*."""
    bits = bytearray(-(-max(1, len(tags)) * limits.SUMMARY_BITS // 8))
    for tag in tags:
        for place in _places(tag, 8 * len(bits)):
            bits[place >> 3] |= 1 << (place & 7)
    last = pages[-1]
    return Summary(pages[0].number, last.number, bytes(bits), last.at_ms + page_ms)


def summed_up(pages: Iterable[Page], *, page_ms: int, all_of_it: bool) -> Iterator[Summary]:
    """Summaries of *pages*, which follow each other; a last few are left unless *all_of_it*."""
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


def _places(tag: str, size: int) -> Iterator[int]:
    digest = blake2b(tag.encode(), digest_size=16).digest()
    at, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
    return ((at + probe * step) % size for probe in range(_PROBES))
