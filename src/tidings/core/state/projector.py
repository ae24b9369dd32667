"""The follower `state`: project the latest operation of each object into the state table.

The follower also maintains the sums of the state. A write of a row returns the row that it
replaced, so nothing is read for the sums. The replaced row is unknown if an earlier run wrote the
same row and crashed. The bucket of the row is then read and counted again, a step at a time, while
the follower continues. The whole state is counted if it was copied from another feed, or has no
sums.

On a server, sums take a sixth of the CPU of a bulk operation (ADR 61). A server therefore maintains
the sums of a feed only while clients request them (`SumDemand`). The first request waits until the
state has been counted. A stage maintains the sums of every feed, which adds 2 % to its writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import Unavailable
from tidings.core.model.feeds import STATE, pushers
from tidings.core.newest import Newest
from tidings.core.state.removed_parents import removed_by
from tidings.core.state.rows import NOTHING, bucket_of, project
from tidings.core.state.sums import (
    ALL,
    MODULO,
    Sums,
    changes_in,
    digest,
    note_of,
    recall_sums,
    type_of,
)
from tidings.core.state.tombstones import known_since, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.effects import Clock, Runtime
    from tidings.core.followers.leases import Lease, Waker
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.state.removed_parents import RemovedParentsStore
    from tidings.core.state.rows import Overwritten, Row, StateStore
    from tidings.core.state.sums import SumStore
    from tidings.core.state.tombstones import TombstoneStore


def always(feed: str) -> bool:
    """Return True, so that the sums are maintained even if no client requests them."""
    return True


@dataclass(frozen=True, slots=True)
class SumDemand:
    """The time until which the sums of each feed are maintained, because clients requested them.

    The first request after a pause wakes the follower `state`, which then counts the state. A new
    process does not maintain sums before the first request.
    """

    clock: Clock
    waker: Waker
    _until_ms: Newest[str, int] = field(default_factory=Newest)

    def note(self, feed: str) -> None:
        """Record a request for the sums of *feed*."""
        lacks = not self.wants(feed)
        self._until_ms[feed] = self.clock() + limits.SUMS_WANTED_MS
        if lacks:
            self.waker.wake(feed, STATE)

    def wants(self, feed: str) -> bool:
        """Return True if a client requested the sums in the last `limits.SUMS_WANTED_MS`."""
        until_ms = self._until_ms.get(feed)
        return until_ms is not None and is_ahead(until_ms, self.clock(), limits.SUMS_WANTED_MS)


@dataclass(slots=True)
class _RunningSums:
    """The *sums* of a feed, and *changes* since then. *stored* is True if the store has *sums*."""

    sums: Sums
    changes: dict[tuple[str, int], int] = field(default_factory=dict)
    stored: bool = True
    counts_none: bool = field(init=False)

    def __post_init__(self) -> None:
        self.counts_none = self.sums.counts_none

    def at_page(self, page: int) -> Sums:
        return self.sums.with_changes(page, self.changes)

    def add(self, rows: Iterable[tuple[Row, Overwritten]]) -> None:
        """Add the digest of each row, and subtract the digest of the row that it replaced."""
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
    """The sums of each feed for which this process holds the lease of the follower `state`.

    The sums of a feed are maintained only if *wanted* returns True for the feed. `begin` starts
    from the note of the last holder of the lease. `note` returns the note for the next holder.
    *rows_max* is the maximum number of rows that one call of `recount` reads.
    """

    store: SumStore
    states: StateStore
    wanted: Callable[[str], bool] = always
    rows_max: int = limits.SUM_COUNT_ROWS
    _leases: dict[str, Lease] = field(default_factory=dict)
    _running: dict[str, _RunningSums] = field(default_factory=dict)

    def begin(self, lease: Lease) -> None:
        self._leases[lease.feed] = lease
        self._running.pop(lease.feed, None)

    def forget(self, feed: str) -> None:
        """Remove the deleted *feed* from memory."""
        self._leases.pop(feed, None)
        self._running.pop(feed, None)

    def note(self, feed: str) -> bytes:
        """Return the note to store with the checkpoint, of at most `limits.NOTE_BYTES_MAX`."""
        running = self._running.get(feed)
        return running.note if running else self._leases[feed].note

    def count(
        self,
        feed: str,
        pages: Sequence[Page],
        rows: Iterable[Row],
        overwritten: Iterable[Overwritten | None],
        *,
        may_lack: bool,
    ) -> None:
        """Count the *rows* of *pages*, which have replaced *overwritten* in the state.

        If *may_lack* is True, the result `NOTHING` does not prove that an object had no row: a run
        that crashed may have written a tombstone that has expired in the meantime.

        Raises:
            Unavailable: another process stored sums, or the store does not answer.
        """
        running, last = self._running.get(feed) or self._begin_sums(feed), pages[-1].number
        if last <= running.sums.page:
            return  # an earlier run counted these rows, and crashed before it moved the checkpoint
        if running.counts_none:
            return
        lost, known = set(), []
        first, unknown = pages[0].number, running.sums.unknown
        for row, before in zip(rows, overwritten, strict=True):
            if unknown and not running.sums.counts(row.bucket, row.key):
                continue
            if before is None or before.page >= first or (may_lack and before == NOTHING):
                lost.add(row.bucket)
            else:
                known.append((row, before))
        running.add(known)
        fits = running.stored and len(running.changes) <= limits.SUM_CHANGES_MAX
        if lost or (running.changes and not fits):
            note = b"" if lost else running.note
            self._store(feed, running.at_page(last).without(frozenset(lost)), note)

    def recount(self, feed: str, checkpoint: int) -> bool:
        """Count some rows of the unknown buckets, as of *checkpoint*.

        If the sums are not wanted, mark all buckets as unknown. Return True if another call can
        count more rows.

        Raises:
            Unavailable: see `count`.
        """
        running = self._running.get(feed) or self._begin_sums(feed)
        if running.sums.page > checkpoint:
            return False
        if self.wanted(feed):
            return bool(running.sums.unknown) and self._recount(feed, running, checkpoint)
        if not running.counts_none:
            self._store(feed, running.at_page(checkpoint).without(ALL))
        return False

    def _recount(self, feed: str, running: _RunningSums, checkpoint: int) -> bool:
        before = sums = running.at_page(checkpoint)
        left = self.rows_max
        while sums.unknown and left > 0:
            begun = sums.after is not None
            sums = sums if begun else replace(sums, at=min(sums.unknown))
            rows = self.states.read(feed, sums.at, sums.after)
            # A row after the checkpoint is from a run that crashed; the next batch counts it.
            known = list(takewhile(lambda row: row.page <= checkpoint, rows))
            sums = _add_rows(sums, known)
            if len(known) < len(rows):
                break
            if not rows:
                sums = replace(sums, unknown=sums.unknown - {sums.at}, after=None)
            left -= len(rows)
        if sums != before:
            self._store(feed, sums)
        return bool(sums.unknown) and left <= 0

    def _begin_sums(self, feed: str) -> _RunningSums:
        running = self._running[feed] = self._recall(self._leases[feed])
        return running

    def _recall(self, lease: Lease) -> _RunningSums:
        stored = self.store.read(lease.feed)
        sums = recall_sums(stored, lease.note, lease.checkpoint)
        if stored is None and not lease.checkpoint:
            return _RunningSums(Sums(0))  # there is nothing to count before the first page
        if sums is None:
            version = stored.version if stored else 0
            unknown = Sums(lease.checkpoint, unknown=ALL, version=version)
            return _RunningSums(unknown, stored=False)
        if stored is None or sums is stored:
            return _RunningSums(sums)
        return _RunningSums(stored, changes_in(lease.note, stored))

    def _store(self, feed: str, sums: Sums, note: bytes = b"") -> None:
        stored = replace(sums, version=sums.version + 1)
        if not self.store.write(feed, stored, note):
            raise Unavailable(f"{feed}: another process stored the sums of the state")
        self._running[feed] = _RunningSums(stored)


def _add_rows(sums: Sums, rows: Sequence[Row]) -> Sums:
    """Return *sums* after counting *rows*, which are the next rows of the bucket `sums.at`."""
    changes: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.lives:
            at = sums.entry(row.key), sums.at
            if at[0] not in sums.types:
                sums = sums.with_type(at[0])
            change = changes.get(at, 0) + digest(row.key, row.page, row.slot)
            changes[at] = change % MODULO
    after = rows[-1].key if rows else sums.after
    return replace(sums.with_changes(sums.page, changes), after=after)


@dataclass(frozen=True, slots=True)
class RemovedParentsWriter:
    """The part of the follower `state` that keeps removed parents, in feeds with `Profile.leave`.

    The stored removed parents of a page are never replaced.
    """

    store: RemovedParentsStore
    profiles: ProfileStore
    waker: Waker
    tombstones: TombstoneStore
    runtime: Runtime

    def keeps(self, feed: str) -> bool:
        return self.profiles.profile(feed).leave

    def write(self, feed: str, pages: Sequence[Page], stored: Sequence[Row]) -> None:
        """Write the parents that *pages* remove from the rows *stored*."""
        forgotten_ms = _forgotten_ms(self.tombstones, feed, self.runtime.clock())
        page_ms = self.runtime.page_ms
        removed = removed_by(pages, stored, page_ms=page_ms, forgotten_ms=forgotten_ms)
        if removed:
            self.store.write(feed, removed)

    def wake_readers(self, feed: str) -> None:
        profile = self.profiles.profile(feed)
        for pusher in pushers(profile.push_lanes) if profile.leave else ():
            self.waker.wake(feed, pusher)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projector:
    """The handler of the follower `state`, which derives rows, removed parents and sums from pages.

    A row replaces only an older row, so repeated pages and late writes of a process that lost the
    lease change nothing.

    Removed parents are written before the new rows, while the old rows still have these parents.
    The lifetime of tombstones is recorded before tombstones are written, so that no tombstone has a
    shorter life than the record says.

    *on_erasure* is called with the feed and the row of each entry that records an erasure. It must
    be idempotent, because pages may be handled again.
    """

    states: StateStore
    parents: RemovedParentsWriter
    tombstones: TombstoneStore
    sums: SumKeeper
    runtime: Runtime
    on_erasure: Callable[[str, Row], object] | None = None

    @property
    def name(self) -> str:
        return STATE

    def begin(self, lease: Lease) -> int:
        """Return the page to resume after: the checkpoint, because no page may be skipped."""
        self.sums.begin(lease)
        return lease.checkpoint

    def prepare(self, feed: str, checkpoint: int) -> bool:
        """Count some rows of unknown buckets, even if there are no new pages."""
        return self.sums.recount(feed, checkpoint)

    def note(self, feed: str) -> bytes:
        return self.sums.note(feed)

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        now_ms, tombstone_ms = self.runtime.clock(), self.runtime.tombstone_ms
        rows = project(
            pages,
            tombstone_ms=tombstone_ms,
            now_ms=now_ms,
            on_erasure=self.on_erasure and partial(self.on_erasure, feed),
        )
        first = bool(pages) and pages[0].first == 1
        if first or any(map(attrgetter("expires_ms"), rows)):
            note(self.tombstones, feed, tombstone_ms, self.runtime.clock(), first=first)
        if rows and self.parents.keeps(feed):
            stored = self.states.find(feed, [row.key for row in rows])
            self.parents.write(feed, pages, stored)
        if rows:
            overwritten = self.states.write(feed, rows)
            oldest_ms = min(map(attrgetter("at_ms"), pages))
            # Every tombstone lives longer than `RETENTION_MS_MIN`. So only in a late batch can a
            # row be missing because its tombstone has expired.
            is_late = oldest_ms < now_ms - limits.RETENTION_MS_MIN
            may_lack = is_late and oldest_ms <= _forgotten_ms(
                self.tombstones, feed, self.runtime.clock()
            )
            self.sums.count(feed, pages, rows, overwritten, may_lack=may_lack)
            self.sums.recount(feed, pages[-1].number)
        return len(pages)

    def on_checkpoint(self, feed: str) -> None:
        self.parents.wake_readers(feed)

    def on_pages_lost(self, feed: str) -> bool:
        """Return False to stop, because the state would be wrong without the lost pages."""
        return False


def _forgotten_ms(tombstones: TombstoneStore, feed: str, now_ms: int) -> int:
    """Return the commit time up to which the tombstones of deletions may have expired."""
    known_ms = known_since(tombstones, feed, now_ms)
    return known_ms + limits.CLOCK_SKEW_MS_MAX  # DynamoDB deletes by its own clock
