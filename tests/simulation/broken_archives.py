"""Archives with one rule taken out; `mutations` names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidings.core.archive.writer import Archiver
from tidings.core.catchup.catchup import CatchUp, Progress, Step
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page


class HastyArchiver(Archiver):
    """The checkpoint moves although the last page of a part is not in it."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        done = Archiver.handle(self, feed, pages[:-1] or pages)
        return min(done + 1, len(pages))


class LeapingReplay(CatchUp):
    """Behind a part of the archive it goes on with the log, whatever lies between."""

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        step = CatchUp.step(self, feed, progress, wanted)
        if not step.progress.archived:
            return step
        page = max(step.progress.page, self.reader.trim.floor(feed) - 1)
        return replace(step, progress=replace(step.progress, page=page))
