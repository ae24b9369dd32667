"""Request the erasure of objects that were deleted long ago (`Profile.forget_after_days`).

Deletions are found by reading the log, and below its floor the archive, once and in order. The last
page that was read is stored, so the cost is that of the pages that have become old enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.erasure.entries import Entry
from tidings.core.log.due import NEXT_SWEEP
from tidings.core.model.operations import event_of, has_object, is_erasure, parse_line
from tidings.core.model.timestamps import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.effects import Runtime
    from tidings.core.erasure.service import Erasures
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore

CALLER, REASON = "setting", "forget-after"
_DOCUMENT = "forgotten"  # its text is the number of the last page that was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetter:
    """The search of all feeds. *documents* are read without a cache. *chained* are the copies."""

    profiles: ProfileStore
    documents: OperatorDocuments
    erasures: Erasures
    runtime: Runtime
    archive: ArchiveReader | None = None
    chained: Container[str] = ()

    def run(self, feed: str, until_ms: int) -> bool:
        """Request erasures of *feed* until *until_ms* by the steady clock, for at least some pages.

        Return True if more pages are old enough.

        Raises:
            Unavailable: a store does not answer, or another process does the same.
        """
        days = self.profiles.profile(feed).forget_after_days
        if not days or feed in self.chained:
            return False
        newest_ms = self.runtime.clock() - days * DAY_MS
        while True:
            document = self.documents.operator_document(feed, _DOCUMENT)
            pages = self._pages(feed, int(document.text or 0))
            old = list(takewhile(lambda page: page.at_ms <= newest_ms, pages))
            for page in old:
                self._forget(feed, page)
            if old:
                read = replace(document, text=str(old[-1].number))
                self.documents.write(feed, _DOCUMENT, read)
            if not old or len(old) < len(pages):
                return False
            if self.runtime.steady() >= until_ms:
                return True

    def due_ms(self, feed: str) -> int | None:
        """Return the time at which the next page of *feed* is old enough; None without such a page.

        Return `NEXT_SWEEP` if the page is only in the archive, which is not read.
        """
        days = self.profiles.profile(feed).forget_after_days
        if not days or feed in self.chained:
            return None
        after = int(self.documents.operator_document(feed, _DOCUMENT).text or 0)
        floor = self.erasures.appender.log.floor(feed)
        if after + 1 < floor and self.archive is not None:
            return NEXT_SWEEP
        pages = self.erasures.appender.log.read(feed, max(after, floor - 1), 1)
        return pages[0].at_ms + days * DAY_MS if pages else None

    def _pages(self, feed: str, after: int) -> Sequence[Page]:
        """Return some pages after page *after* from the archive or the log."""
        floor = self.erasures.appender.log.floor(feed)
        if after + 1 < floor and self.archive is not None:
            pages = self.archive.read(feed, after, floor - 1)
            if not pages:  # a gap, as at the beginning of an archive that was turned on later
                begin = self.archive.begins(feed, floor - 1) - 1
                pages = self.archive.read(feed, max(after, begin), floor - 1)
            if pages:
                return pages
        return self.erasures.appender.log.read(feed, max(after, floor - 1), limits.FORGET_PAGES)

    def _forget(self, feed: str, page: Page) -> None:
        for slot, line in page.entries():
            if event_of(line) != "delete" or is_erasure(line) or not has_object(line):
                continue
            operation = parse_line(line)
            entry = Entry(operation.type, operation.id, CALLER, REASON, operation.parents)
            self.erasures.forget(feed, entry, (page.number, slot))
