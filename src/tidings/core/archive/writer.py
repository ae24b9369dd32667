"""The follower `archive`, which writes the pages of the log to the archive, many pages per part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.archive.segments import encode
from tidings.core.followers.follower import ARCHIVE, FollowerConfig
from tidings.core.log.reader import PagesLost, Reader, Run
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.effects import Count
    from tidings.core.followers.leases import Lease
    from tidings.core.model.pages import Page

# The archive does not wait at a hole: the run of the follower ends there. Each batch costs a write,
# and the batch after a wait would have only a page or two.
ARCHIVE_CONFIG = FollowerConfig(
    limits.ARCHIVE_PART_OPERATIONS, limits.ARCHIVE_PART_OPERATIONS, waits=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReadAhead(Reader):
    """A reader that continues until it has enough pages for a part."""

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        run = Reader.read(self, feed, after, limit)
        pages, size = list(run.pages), _size(run.pages)
        while run.pages and run.more and limit is None and size < limits.ARCHIVE_PART_BYTES:
            try:
                run = Reader.read(self, feed, pages[-1].number)
            except PagesLost:
                return Run(pages, more=True)  # the next read reports the lost pages
            pages += run.pages
            size += _size(run.pages)
        # If the floor rose after some pages were read, return these pages. The next read reports
        # that pages were trimmed.
        lost = run.trimmed and bool(pages)
        return replace(run, pages=pages, more=run.more or lost, trimmed=run.trimmed and not lost)


@dataclass(frozen=True, slots=True)
class Archiver:
    """A `Handler` that writes pages to the archive.

    The checkpoint is stored after the part. If the process crashes in between, or has lost its
    lease, the next run archives the same pages again.

    The note of the lease is the generation in which to write, see `note_of`.
    """

    store: ArchiveStore
    count: Count
    # By feed; `begin` sets the note of a feed at the start of each run.
    _notes: Newest[str, bytes] = field(default_factory=Newest)

    @property
    def name(self) -> str:
        return ARCHIVE

    def begin(self, lease: Lease) -> int:
        """Return the checkpoint, because no page may be skipped.

        The generation was stored with the checkpoint, so the pages after it are of the generation.
        """
        self._notes[lease.feed] = lease.note
        return lease.checkpoint

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Return False, because there is nothing to prepare."""
        return False

    def note(self, feed: str) -> bytes:
        return self._notes.get(feed, b"")

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        part = _of_a_part(pages)
        span, body = encode(part, generation_of(self.note(feed)))
        self.store.put(feed, span, body)
        self.count("PartsArchived", 1)
        return len(part)

    def on_checkpoint(self, feed: str) -> None:
        """Do nothing, because no process waits for the archive."""

    def on_pages_lost(self, feed: str) -> bool:
        """Return True, so that the archive skips missing pages, which leaves a gap."""
        return True


def note_of(generation: int) -> bytes:
    """Return the note of the archive's lease if parts are written in *generation*."""
    return str(generation).encode()


def generation_of(note: bytes) -> int:
    """Return the generation in *note*; 0 for a lease of a feed that was never restored."""
    return int(note or 0)


def _of_a_part(pages: Sequence[Page]) -> Sequence[Page]:
    """Return as many of the first *pages* as fit into a part, at least one."""
    size = 0
    for at, page in enumerate(pages):
        size += len(page.text)
        if at and size > limits.ARCHIVE_PART_BYTES:
            return pages[:at]
    return pages


def _size(pages: Sequence[Page]) -> int:
    return sum(len(page.text) for page in pages)
