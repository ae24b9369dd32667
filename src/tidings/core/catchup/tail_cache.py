"""
The tail cache: the last pages of a log in memory, read once for all waiting streams.

The cache is a contiguous part of the log up to `last`. A stream inside it gets the next pages from
memory; a stream before it reads the log. Pages never change, so the cache stays correct.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.batches import Lasting, PageSlice

if TYPE_CHECKING:
    from tidings.core.log.reader import Run
    from tidings.core.model.pages import Page


@dataclass(frozen=True, slots=True)
class Held:
    """A page, unpacked, and a part with all of it. The text is built once for all streams."""

    page: Page
    part: Lasting


@dataclass(slots=True)
class Tail:
    """A cache of the last pages of a log. The next page is read after *last*."""

    last: int = 0
    bytes_max: int = limits.TAIL_BYTES_MAX
    _held: deque[Held] = field(default_factory=deque)
    _size: int = 0
    _before: int = 0  # the page before the first cached one

    def start(self, last: int) -> None:
        """Clear the cache, and continue after page *last*."""
        self.last, self._before, self._size = last, last, 0
        self._held.clear()

    def extend(self, run: Run) -> bool:
        """Add the pages that were read after `last`; return True if there are new pages."""
        if run.trimmed:  # a stream below it reads the log, and gets the error there
            self.start(run.floor - 1)
            return True
        for page in run.pages:
            assert page.first <= self.last + 1
            self._hold(replace(page, body=page.text))
        return bool(run.pages)

    def reaches(self, page: int) -> bool:
        """Return True if all pages after *page* up to `last` are cached."""
        return page >= self._before

    def behind(self, page: int) -> list[Held]:
        """
        Return the pages after *page*, which the cache must reach, in order; [] at or after `last`.
        """
        assert self.reaches(page)
        following = [*takewhile(lambda held: held.page.number > page, reversed(self._held))]
        return following[::-1]

    def _hold(self, page: Page) -> None:
        self._held.append(Held(page, Lasting(PageSlice(page))))
        self.last = page.number
        self._size += _weight(page)
        while self._size > self.bytes_max:
            page = self._held.popleft().page
            self._before, self._size = page.number, self._size - _weight(page)


def _weight(page: Page) -> int:
    """Return the size of the text of *page*, which is cached twice: as lines and as blocks."""
    return limits.TAIL_PAGE_BYTES + 2 * len(page.body)
