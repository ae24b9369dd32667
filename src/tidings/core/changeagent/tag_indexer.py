"""Indexing: what came to the log since the last run is summed up by its tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.changeagent.tag_index import summed_up
from tidings.core.log.reader import PagesLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.changeagent.stores import TagStore
    from tidings.core.effects import Clock
    from tidings.core.log.reader import Reader


@dataclass(frozen=True, slots=True)
class Indexer:
    """Two that run at once write the same; nobody waits for either."""

    store: TagStore
    reader: Reader
    page_ms: int

    def run(self, feed: str, until_ms: int | None = None) -> int:
        """Sum up what came since the last run, until *until_ms*; the last page summed up now."""
        until = until_ms or self.reader.clock() + limits.INDEX_RUN_MS
        after, more = max(self.store.last(feed), self.reader.trim.floor(feed) - 1), True
        while more and self.reader.clock() < until:
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
    """Whether there is something to sum up: *wake* is called with the feed where there is."""

    store: TagStore
    wake: Callable[[str], None]
    clock: Clock

    def run(self, feed: str, *, head: int) -> None:
        """
        Pages are summed up where they fill a summary, and now and then whatever there is.

        Nobody waits for it: listers read in the log what is not summed up.
        """
        waiting = head - self.store.last(feed)
        turn = self.clock() // limits.SWEEP_EVERY_MS % limits.INDEX_EVERY
        if waiting >= limits.SUMMARY_PAGES or (waiting > 0 and turn == 0):
            self.wake(feed)
