"""
How the follower `state` keeps the sums of the state, beside the rows that it writes.

A put tells which row it replaced, so nothing is read for them. Where that is not known, because a
run that died has put the row before, its bucket is counted again: read once more, a step at a time,
while the follower goes on. So is everything where the state was written by a release that kept no
sums, or copied from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.state.rows import NOTHING, bucket_of
from tidings.core.state.sum_demand import always
from tidings.core.state.sums import (
    ALL,
    MODULO,
    Sums,
    changes_in,
    digest,
    note_of,
    recalled,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.followers.leases import Lease
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Overwritten, Row
    from tidings.core.state.stores import StateStore, SumStore


@dataclass(slots=True)
class _Tally:
    """*sums*, which are *stored* as they are or not at all, and the *changes* since."""

    sums: Sums
    changes: dict[tuple[str, int], int] = field(default_factory=dict)
    stored: bool = True

    def behind(self, page: int) -> Sums:
        return self.sums.behind(page, self.changes)

    def add(self, rows: Iterable[tuple[Row, Overwritten]]) -> None:
        """Each row, and what it took the place of."""
        changes, entries = self.changes, {name: name for name in self.sums.types}
        for row, (page, slot, lived) in rows:
            key = row.key
            change = digest(key, row.page, row.slot) if row.lives else 0
            if lived:
                change -= digest(key, page, slot)
            kind = type_of(key)
            name = entries.get(kind)
            if name is None:
                name = entries[kind] = self._entry(key)
            at = name, bucket_of(key)
            changes[at] = changes.get(at, 0) + change
        self.changes = {at: change % MODULO for at, change in changes.items()}

    def _entry(self, key: str) -> str:
        name = self.sums.entry(key)
        if name not in self.sums.types:
            self.sums, self.stored = self.sums.with_type(name), False
        return name

    @property
    def note(self) -> bytes:
        return note_of(self.sums, self.changes) if self.stored else b""


@dataclass(frozen=True, slots=True)
class SumKeeper:
    """
    Of each feed whose lease its process holds: `begin` with what the last holder left, and `note`
    is what to leave. It keeps no sums of a feed where they are not *wanted*.
    """

    store: SumStore
    states: StateStore
    wanted: Callable[[str], bool] = always
    _leases: dict[str, Lease] = field(default_factory=dict)
    _tallies: dict[str, _Tally] = field(default_factory=dict)

    def begin(self, lease: Lease) -> None:
        self._leases[lease.feed] = lease
        self._tallies.pop(lease.feed, None)

    def note(self, feed: str) -> bytes:
        """What belongs to the checkpoint, at most `limits.NOTE_BYTES_MAX`."""
        tally = self._tallies.get(feed)
        return tally.note if tally else self._leases[feed].note

    def count(
        self,
        feed: str,
        pages: Sequence[Page],
        rows: Iterable[Row],
        overwritten: Iterable[Overwritten | None],
        *,
        may_lack: bool,
    ) -> None:
        """
        The *rows* of *pages* stand now, in place of what was *overwritten*.

        *may_lack*: a run that died may have written tombstones which have expired since, so that
        nothing where a row came does not say that nothing was there.

        Raises:
            Unavailable: somebody else stored sums, or the store does not answer.
        """
        tally, last = self._tally(feed), pages[-1].number
        if last <= tally.sums.page:
            return  # a run that died counted them, and had no time to move the checkpoint
        if tally.sums.counts_none:
            return
        lost, known = set(), []
        first, unknown = pages[0].number, tally.sums.unknown
        for row, before in zip(rows, overwritten, strict=True):
            if unknown and not tally.sums.counts(row.bucket, row.key):
                continue
            if before is None or before.page >= first or (may_lack and before == NOTHING):
                lost.add(row.bucket)
            else:
                known.append((row, before))
        tally.add(known)
        fits = tally.stored and len(tally.changes) <= limits.SUM_CHANGES_MAX
        if lost or (tally.changes and not fits):
            note = b"" if lost else tally.note
            self._store(feed, tally.behind(last).without(frozenset(lost)), note)

    def recount(self, feed: str, checkpoint: int) -> bool:
        """
        A step of counting what is not known, as of *checkpoint*; whether there is more to count.

        Where sums are not wanted, none is known from then on.

        Raises:
            Unavailable: as `count`.
        """
        tally = self._tally(feed)
        if tally.sums.page > checkpoint:
            return False
        if self.wanted(feed):
            return bool(tally.sums.unknown) and self._recount(feed, tally, checkpoint)
        if not tally.sums.counts_none:
            self._store(feed, tally.behind(checkpoint).without(ALL))
        return False

    def _recount(self, feed: str, tally: _Tally, checkpoint: int) -> bool:
        before = sums = tally.behind(checkpoint)
        left = limits.SUM_COUNT_ROWS
        while sums.unknown and left > 0:
            begun = sums.after is not None
            sums = sums if begun else replace(sums, at=min(sums.unknown))
            rows = self.states.read(feed, sums.at, sums.after)
            # A row behind the checkpoint is that of a run that died: the next turn brings it.
            known = list(takewhile(lambda row: row.page <= checkpoint, rows))
            sums = _counted(sums, known)
            if len(known) < len(rows):
                break
            if not rows:
                sums = replace(sums, unknown=sums.unknown - {sums.at}, after=None)
            left -= len(rows)
        if sums != before:
            self._store(feed, sums)
        return bool(sums.unknown) and left <= 0

    def _tally(self, feed: str) -> _Tally:
        if feed not in self._tallies:
            lease = self._leases[feed]
            self._tallies[feed] = self._recalled(lease)
        return self._tallies[feed]

    def _recalled(self, lease: Lease) -> _Tally:
        stored = self.store.read(lease.feed)
        sums = recalled(stored, lease.note, lease.checkpoint)
        if stored is None and not lease.checkpoint:
            return _Tally(Sums(0))  # before the first page there is nothing to count
        if sums is None:
            version = stored.version if stored else 0
            unknown = Sums(lease.checkpoint, unknown=ALL, version=version)
            return _Tally(unknown, stored=False)
        if stored is None or sums is stored:
            return _Tally(sums)
        return _Tally(stored, changes_in(lease.note, stored))

    def _store(self, feed: str, sums: Sums, note: bytes = b"") -> None:
        stored = replace(sums, version=sums.version + 1)
        if not self.store.write(feed, stored, note):
            raise Unavailable(f"{feed}: somebody else stored sums of its state")
        self._tallies[feed] = _Tally(stored)


def _counted(sums: Sums, rows: Sequence[Row]) -> Sums:
    """*sums* with *rows*, which come next in the bucket that is counted."""
    changes: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.lives:
            at = sums.entry(row.key), sums.at
            if at[0] not in sums.types:
                sums = sums.with_type(at[0])
            change = changes.get(at, 0) + digest(row.key, row.page, row.slot)
            changes[at] = change % MODULO
    after = rows[-1].key if rows else sums.after
    return replace(sums.behind(sums.page, changes), after=after)
