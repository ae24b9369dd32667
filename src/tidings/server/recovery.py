"""
Recovery of a file in which a page number was taken but the page was never written.

Earlier releases wrote the number and the page separately, and left such a hole when they were
killed; no reader can pass it. The follower `state` has handled every page up to its checkpoint. A
missing number above the checkpoint was never acknowledged: pages expire only after the state has
handled them, and writers outside a transaction are never between the number and the page. So the
hole is filled, however old it is. A missing number at or below the checkpoint had a page, which is
lost: it is reported and never filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.model.feeds import STATE
from tidings.core.model.pages import filler

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tidings.core.effects import Clock
    from tidings.core.log.stores import Checkpoints
    from tidings.server.sqlite.database import Database
    from tidings.server.sqlite.log import Numbers, SqliteLog


@dataclass(frozen=True, slots=True)
class Recovery:
    """
    A repair that fills unwritten page numbers.

    *page_ms* is the retention of a page. The *chained* feeds are skipped: their upstream writes
    them.
    """

    database: Database
    log: SqliteLog
    checkpoints: Checkpoints
    chained: Container[str]
    clock: Clock
    page_ms: int

    def unwritten(self, feed: str) -> Sequence[Numbers]:
        """Return the numbers that will never get a page; empty for a chained feed."""
        return () if feed in self.chained else self.log.missing(feed, self._handled(feed))

    def fill(self, feed: str) -> Sequence[Numbers]:
        """
        Write an empty page under each unwritten number; return those numbers.

        Raises:
            Unavailable: the disk is full or does not answer; nothing was written.
        """
        with self.database.transaction():
            holes, now_ms = self.unwritten(feed), self.clock()
            for hole in holes:
                beyond = self.log.read(feed, hole.last, 1)  # a cursor on a filler uses its time
                at_ms = beyond[0].at_ms if beyond else now_ms
                expires_ms = now_ms + self.page_ms
                numbers = range(hole.first, hole.last + 1)
                self.log.fill(
                    feed, [filler(each, at_ms=at_ms, expires_ms=expires_ms) for each in numbers]
                )
            return holes

    def end(self, feed: str) -> int:
        """Return the last page that a reader of *feed* can reach from the state's checkpoint."""
        missing = self.log.missing(feed, self._handled(feed))
        return missing[0].first - 1 if missing else self.log.head(feed)

    def _handled(self, feed: str) -> int:
        state = self.checkpoints.checkpoints(feed).get(STATE, 0)
        return max(state, self.log.floor(feed) - 1)
