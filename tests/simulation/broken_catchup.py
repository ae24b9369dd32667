"""Catch-ups and archives with one rule of the copy taken out; `mutations` names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.fakes import MemoryState
from tidings.core import limits
from tidings.core.archive.writer import Archiver
from tidings.core.catchup.catchup import CatchUp, Progress, Step
from tidings.core.followers.follower import STATE
from tidings.core.log.reader import Reader, Run
from tidings.core.model.cursors import PAGE_END, Cursor, Place, Replication
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page
from tidings.core.state.rows import Lines, Row, StateStore


class NextBucket(CatchUp):
    """A resumed copy skips the bucket in which it was interrupted."""

    def start(self, feed: str, cursor: Cursor) -> Progress:
        if isinstance(cursor, Replication):
            cursor = replace(cursor, bucket=min(cursor.bucket + 1, limits.BUCKETS))
        return super().start(feed, cursor)


class ForgottenTombstones(CatchUp):
    """A resumed copy does not send the deletions of its remaining objects."""

    def start(self, feed: str, cursor: Cursor) -> Progress:
        if isinstance(cursor, Replication):
            cursor = replace(cursor, tombstones=False)
        return super().start(feed, cursor)


class LateCheckpoint(CatchUp):
    """After the rows, the log continues at the state's new page, not at its page at the start."""

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        step = super().step(feed, progress, wanted)
        if not progress.copying or step.progress.copying:
            return step
        page = self.reader.checkpoints.checkpoints(feed).get(STATE, 0)
        return replace(step, progress=replace(step.progress, page=page))


class LateResumption(CatchUp):
    """A resumed copy continues with the log, at the present page of the state."""

    def start(self, feed: str, cursor: Cursor) -> Progress:
        progress = super().start(feed, cursor)
        if not progress.copying or not isinstance(cursor, Replication):
            return progress
        return replace(progress, page=self.reader.checkpoints.checkpoints(feed).get(STATE, 0))


class FloorOfSecond(CatchUp):
    """Sends rows up to the last whole second of the log, then the log after its end."""

    def start(self, feed: str, cursor: Cursor) -> Progress:
        progress = super().start(feed, cursor)
        if not progress.copying or isinstance(cursor, Replication):
            return progress
        return replace(progress, page=self.reader.frontier(feed, progress.page).page)

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        page = self.reader.at(feed, progress.page)
        if not progress.copying or page is None:
            return super().step(feed, progress, wanted)
        bounded = _Bounded(self.states, page.at_ms // 1000 * 1000)
        return CatchUp.step(replace(self, states=bounded), feed, progress, wanted)


class _Bounded(MemoryState):
    """The rows of *states* that were written until *until_ms*."""

    def __init__(self, states: StateStore, until_ms: int) -> None:
        super().__init__()
        self._states, self._until_ms = states, until_ms

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        rows = self._states.read(feed, bucket, after)
        return [row for row in rows if row.at_ms <= self._until_ms]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        rows = self._states.read(feed, bucket, after)
        after = rows[-1].key if rows else None
        rows = [row for row in rows if row.at_ms <= self._until_ms]
        return Lines([row.line for row in rows], [row.page for row in rows], after)


class StraightToTheLog(CatchUp):
    """An unknown id that names a page of ours is believed, whatever its second."""

    def start(self, feed: str, cursor: Cursor) -> Progress:
        if isinstance(cursor, Place) and cursor.page:
            page = min(cursor.page, self.reader.checkpoints.checkpoints(feed).get(STATE, 0))
            return Progress(page, PAGE_END, cursor.seconds)
        return super().start(feed, cursor)


class LeapingReader(Reader):
    """A reader that the floor has overtaken continues at the floor."""

    def read(self, feed: str, after: int, limit: int | None = None) -> Run:
        run = super().read(feed, after, limit)
        return super().read(feed, run.floor - 1, limit) if run.trimmed else run


class HastyArchiver(Archiver):
    """The checkpoint moves although the last page of a part is not in it."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        done = Archiver.handle(self, feed, pages[:-1] or pages)
        return min(done + 1, len(pages))


class LeapingReplay(CatchUp):
    """After a part of the archive it continues with the log and skips the pages between."""

    def step(self, feed: str, progress: Progress, wanted: Filter) -> Step:
        step = CatchUp.step(self, feed, progress, wanted)
        if not step.progress.archived:
            return step
        page = max(step.progress.page, self.reader.log.floor(feed) - 1)
        return replace(step, progress=replace(step.progress, page=page))
