"""Remove the data of deleted feeds: the job, and a removal that spans several stores.

A process may still write to a deleted feed while it has a cached record, so the job removes twice:
at once, and again after a pause. Every step can be repeated. The position is stored in the record,
so a job that was killed continues where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.feeds.records import TABLES_DROPPED, TABLES_PENDING, Removed
from tidings.core.model.feeds import key_of

if TYPE_CHECKING:
    from tidings.core.effects import Runtime
    from tidings.core.feeds.directory import Directory
    from tidings.core.feeds.records import FeedData, FeedRecord, FeedStore, Removal

PASSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Remover:
    """The job that removes the data of deleted feeds.

    Only one process runs it at a time for a name; a second one repeats work, and loses the race to
    write the record. *overwrite* overwrites the free space of the database file after the last
    pass; it returns False if it must be called again later. *settle_ms* is the longest time after a
    deletion for which a process may still write to the feed, at least `limits.REMOVE_SETTLE_MS`.
    """

    directory: Directory
    data: FeedData
    runtime: Runtime
    settle_ms: int = limits.REMOVE_SETTLE_MS
    overwrite: Callable[[], bool] | None = None

    def run(self, until_ms: int) -> bool:
        """Work on all unfinished removals until *until_ms*, a time of the steady clock.

        Return True if more can be done now. A removal that waits for its second pass or for the job
        of the lake needs another run later, see `waits`.

        Raises:
            Unavailable: a store does not answer; another run continues.
        """
        more = False
        for record in self.directory.store.unfinished():
            for removal in record.unfinished:
                more |= self._run(record.name, removal.number, until_ms)
                if self.runtime.steady() >= until_ms:
                    return more or self.has_work()
        return more

    def has_work(self) -> bool:
        """Return True if a removal can be continued now."""
        return any(self._is_due(each) for each in self._undone())

    def waits(self) -> bool:
        """Return True if a removal waits for its second pass."""
        return any(self._undone())

    def _undone(self) -> list[Removal]:
        records = self.directory.store.unfinished()
        return [each for record in records for each in record.unfinished if not each.done_ms]

    def _run(self, name: str, number: int, until_ms: int) -> bool:
        """Continue one removal; return True if more can be done now."""
        key = key_of(name, number)
        while True:
            record = self.directory.store.record(name)
            removal = _find(record, number) if record else None
            if record is None or removal is None or removal.done_ms or not self._is_due(removal):
                return False
            after = self._advance(key, removal, until_ms)
            if after == removal:
                return False  # for example because of a backup; another run tries again later
            if not self._save(record.with_removal(after)):
                return True  # the record was changed; the next run reads it again
            if self.runtime.steady() >= until_ms:
                return True

    def _is_due(self, removal: Removal) -> bool:
        """Return True unless the removal waits until no process writes any more."""
        if removal.passes != PASSES - 1 or removal.place:
            return True
        waited_ms = self.runtime.clock() - removal.deleted_ms
        return not 0 <= waited_ms < max(self.settle_ms, limits.REMOVE_SETTLE_MS)

    def _advance(self, key: str, removal: Removal, until_ms: int) -> Removal:
        """Continue *removal*, and return it as it is afterwards."""
        if removal.passes >= PASSES:
            if self.overwrite is not None and not self.overwrite():
                return removal
            return replace(removal, done_ms=self.runtime.clock())
        done = self.data.remove(key, removal.place, until_ms)
        counts = tuple(sorted((Counter(dict(removal.counts)) + Counter(done.counts)).items()))
        if done.resume_at is not None:
            return replace(removal, place=done.resume_at, counts=counts)
        return replace(removal, place="", passes=removal.passes + 1, counts=counts)

    def _save(self, record: FeedRecord) -> bool:
        try:
            return self.directory.store.save(record)
        finally:
            self.directory.forget()


def note_dropped_tables(store: FeedStore, name: str, number: int) -> None:
    """Record that the job of the lake has dropped the tables of the feed *number* of *name*."""
    while (record := store.record(name)) is not None:
        removal = _find(record, number)
        if removal is None or removal.tables != TABLES_PENDING:
            return
        if store.save(record.with_removal(replace(removal, tables=TABLES_DROPPED))):
            return


def _find(record: FeedRecord, number: int) -> Removal | None:
    return next((each for each in record.removals if each.number == number), None)


@dataclass(frozen=True, slots=True)
class FeedDataParts:
    """Implements `FeedData` by several others, one after the other."""

    parts: Sequence[FeedData]

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """Continue in the part that *resume_at* names by its index: `INDEX:PLACE`.

        After each part, return, so that the position is stored.
        """
        index, _, inner = resume_at.partition(":")
        at = int(index or 0)
        if at >= len(self.parts):
            return Removed(None, {})
        done = self.parts[at].remove(key, inner, until_ms)
        if done.resume_at is not None:
            return Removed(f"{at}:{done.resume_at}", done.counts)
        is_last = at + 1 >= len(self.parts)
        return Removed(None if is_last else f"{at + 1}:", done.counts)
