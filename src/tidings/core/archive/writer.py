"""The follower `archive`: the pages of the log, many in one part, where they stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import encode
from tidings.core.followers.follower import ARCHIVE, Habits
from tidings.core.log.reader import PagesLost, Reader, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.effects import Count
    from tidings.core.followers.leases import Lease
    from tidings.core.model.pages import Page

# A run comes each minute and takes what is there. Before a hole it ends: each turn costs a write,
# and turns that wait bring a page or two.
HABITS = Habits(limits.ARCHIVE_PART_OPERATIONS, limits.ARCHIVE_PART_OPERATIONS, waits=False)


@dataclass(frozen=True, slots=True)
class Gatherer(Reader):
    """Reads until there is enough for a part."""

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        run = Reader.read(self, feed, after, limit)
        pages, size = list(run.pages), _size(run.pages)
        while run.pages and run.more and limit is None and size < limits.ARCHIVE_PART_BYTES:
            try:
                run = Reader.read(self, feed, pages[-1].number)
            except PagesLost:
                return Run(pages, more=True)  # for the next turn to find, as a floor that rises
            pages += run.pages
            size += _size(run.pages)
        # A floor that rises meanwhile is for the next turn to find.
        lost = run.trimmed and bool(pages)
        return replace(run, pages=pages, more=run.more or lost, trimmed=run.trimmed and not lost)


@dataclass(frozen=True, slots=True)
class Archiver:
    """
    A `Handler`. The checkpoint moves when the part is kept; who is killed between the two, or
    has lost the lease, writes the same pages again.
    """

    store: ArchiveStore
    count: Count

    @property
    def name(self) -> str:
        return ARCHIVE

    def begin(self, lease: Lease) -> int:
        """It handles every page."""
        return lease.checkpoint

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Nothing to prepare."""
        return False

    def note(self, feed: str) -> bytes:
        """It leaves none."""
        return b""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        part = _of_a_part(pages)
        span, body = encode(part)
        self.store.put(feed, span, body)
        self.count("PartsArchived", 1)
        return len(part)

    def moved(self, feed: str) -> None:
        """Nobody waits for it."""

    def lost(self, feed: str) -> bool:
        """What was gone before the archive began is not in it; readers see the hole."""
        return True


def _of_a_part(pages: Sequence[Page]) -> Sequence[Page]:
    """As many as a part may hold; one at least."""
    size = 0
    for at, page in enumerate(pages):
        size += len(page.text)
        if at and size > limits.ARCHIVE_PART_BYTES:
            return pages[:at]
    return pages


def _size(pages: Sequence[Page]) -> int:
    return sum(len(page.text) for page in pages)
