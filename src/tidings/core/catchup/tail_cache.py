"""
The tail: the last pages of a log in memory, read once for every stream that waits there.

It is a contiguous piece of the log up to `last`. Who stands inside it takes what follows from
here, who stands before it reads the log. Pages never change, so what is held stays true.
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
    """A page, unpacked, and all of it as a part whose text is made once for everybody."""

    page: Page
    part: Lasting


@dataclass(slots=True)
class Tail:
    """*last* is the page behind which the next one is looked for."""

    last: int = 0
    bytes_max: int = limits.TAIL_BYTES_MAX
    _held: deque[Held] = field(default_factory=deque)
    _size: int = 0
    _before: int = 0  # the page behind which the first one that is held comes

    def start(self, last: int) -> None:
        """Hold nothing, and go on behind page *last*."""
        self.last, self._before, self._size = last, last, 0
        self._held.clear()

    def extend(self, run: Run) -> bool:
        """Take what was read behind `last`; whether there was news."""
        if run.trimmed:  # whoever stands below reads the log, and learns it there
            self.start(run.floor - 1)
            return True
        for page in run.pages:
            assert page.first <= self.last + 1
            self._hold(replace(page, body=page.text))
        return bool(run.pages)

    def reaches(self, page: int) -> bool:
        """Whether everything from behind *page* up to `last` is held."""
        return page >= self._before

    def behind(self, page: int) -> list[Held]:
        """What follows *page*, which the tail reaches, in order; nothing at or beyond `last`."""
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
    """Of its text, which is held twice: as lines and as blocks."""
    return limits.TAIL_PAGE_BYTES + 2 * len(page.body)
