"""Broken ways to report leaves, each without one rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidings.core.catchup.catchup import CatchUp, Progress, Step
from tidings.core.log.reader import Run
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page
from tidings.core.state.projector import Projector
from tidings.core.state.removed_parents import NOTHING, RemovedBySlot, RemovedParentsReader
from tidings.core.state.rows import project
from tidings.core.websocket.push import Pusher


class LateProjector(Projector):
    """Writes the rows first: after a crash the overwritten parents are lost."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        rows = project(pages, tombstone_ms=self.runtime.tombstone_ms)
        standing = self.states.find(feed, [row.key for row in rows])
        if rows:
            written = self.states.write(feed, rows)
            self.sums.count(feed, pages, rows, written, may_lack=False)
        if rows and self.parents.keeps(feed):
            self.parents.write(feed, pages, standing)
        return len(pages)


class SilentProjector(Projector):
    """Does not report that removed parents are settled."""

    def on_checkpoint(self, feed: str) -> None:
        """Silence."""


class HastyLeaves(Pusher):
    """Does not wait for the removed parents of the pages that it sends."""

    def _pages_in_state(self, feed: str, pages: Sequence[Page]) -> Sequence[Page]:
        return pages


class EagerReader(RemovedParentsReader):
    """Regards removed parents as settled before they are written."""

    def until(self, feed: str) -> int:
        return 2**40 - 1


class SkipsRestOfPage(CatchUp):
    """Regards the rest of an unsettled page as sent."""

    def read(self, feed: str, after: int, *, leave: bool, begun: int = 0) -> Run:
        return super().read(feed, after, leave=leave)


class CredulousReader(RemovedParentsReader):
    """If the removed parents are unknown, it assumes that nothing left."""

    def by_page(self, feed: str, pages: Sequence[Page]) -> Mapping[int, RemovedBySlot]:
        return {page.number: NOTHING for page in pages} | dict(super().by_page(feed, pages))


class StickyCopies(CatchUp):
    """A copy by time is silent about what does not match any more."""

    def _copy_step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        return super()._copy_step(feed, progress, replace(wanted, leave=False))
