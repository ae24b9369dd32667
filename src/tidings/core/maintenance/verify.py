"""Compare the state with the log, and repair rows of the state that differ.

The fold of the log is the latest operation of each object. The log is read once and sorted by
bucket. Each bucket of the state is then compared with the fold by a checksum, and row by row if the
checksums differ. A row is correct if it is the object's latest operation up to the checkpoint of
the follower `state`. A row is also correct if it is any later operation of the object, because rows
are written before the checkpoint moves. The checkpoint is read before the rows, and the end of the
log after them. Therefore no correct row is reported, although the feed stays in use during the
verification.

If an object's latest operation is below the floor, the log does not have it. The rows of such
objects are counted, but not verified. With an archive, the comparison starts after the last gap of
the archive instead of at the floor. Even a compacted archive has the latest operation of each
object.

A repair replaces a row only if the row has not changed since the verification, so that the repair
overwrites no concurrent write of the follower `state`. A rebuild that is killed and run again has
the same result. A row with an operation below the floor is never changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.effects import has_passed
from tidings.core.errors import LogIncomplete
from tidings.core.log.reader import PagesLost
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import is_erased
from tidings.core.state.rows import Difference, Kind, bucket_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.log.reader import Reader
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row, StateStore


_DIGEST_BYTES = 16  # two digests are equal by chance once in 10^38
_SUMS = 1 << 8 * _DIGEST_BYTES


class Spill(Protocol):
    """A store of operations as rows, by bucket. There may be more rows than fit into memory."""

    @property
    def buckets(self) -> Collection[int]:
        """Return the buckets to verify."""

    def add(self, rows: Sequence[Row]) -> None:
        """Append *rows*, which are of `buckets`."""

    def rows(self, bucket: int) -> Iterator[Row]:
        """Yield the rows of *bucket* in the order in which they were added."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of the comparison of *bucket* with the log up to page *checkpoint*.

    *agreeing* is the number of rows that match the log. *older* is the number of rows that were not
    verified, because their operations are below the floor.
    """

    bucket: int
    checkpoint: int
    agreeing: int
    older: int
    differences: Sequence[Difference] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows that the bucket has in the state."""
        return self.agreeing + self.older + sum(bool(each.stored) for each in self.differences)


@dataclass(frozen=True, slots=True)
class _Fold:
    """The latest operation of each object up to *checkpoint*."""

    checkpoint: int
    latest: Mapping[str, Row]


@dataclass(slots=True, kw_only=True)
class Verifier:
    """A verification of the buckets of *spill* of a feed.

    Call `read` first, and then `compare` for each bucket. *floor* is the floor of the log at the
    start of the run or, if the archive is read, too, the first page that is read from the archive.
    *page* is the last page that was read. *conflicts* are pages that the archive has with other
    content than the log.
    """

    feed: str
    states: StateStore
    reader: Reader
    spill: Spill
    tombstone_ms: int
    archive: ArchiveReader | None = None
    floor: int = field(default=1, init=False)
    page: int = field(default=0, init=False)
    conflicts: list[int] = field(default_factory=list, init=False)
    _checkpoint: int = 0
    _checked_ms: int = -limits.VERIFY_LOOK_MS
    _lost: bool = False

    def read(self) -> Iterator[int]:
        """Read the archive if there is one, and then the log; yield the last page of each read."""
        self.floor = self.reader.log.floor(self.feed)
        self.page = self.floor - 1
        if self.archive:
            yield from self._read_archive(self.archive)
        yield from self._pages()

    def compare(self, bucket: int) -> Compared:
        """Compare *bucket* with the log.

        Raises:
            LogIncomplete: a page that a follower has handled is lost.
            Unavailable: a store does not answer.
        """
        if has_passed(self._checked_ms, self.reader.clock(), limits.VERIFY_LOOK_MS):
            self._look()
        fold = self._fold(bucket)
        wanted = self._remembered(fold.latest.values())
        older, total = 0, 0
        for row in bucket_rows(self.states.read, self.feed, bucket):
            if self._is_older(row):
                older += 1
            elif not self._forgotten(row):
                total = (total + _digest(row)) % _SUMS
        if total == sum(map(_digest, wanted)) % _SUMS:
            return Compared(bucket, fold.checkpoint, len(wanted), older)
        return self._row_by_row(bucket)

    def _row_by_row(self, bucket: int) -> Compared:
        self._look()
        fold = self._fold(bucket)
        agreeing, older, doubtful = set(), 0, {}
        for row in bucket_rows(self.states.read, self.feed, bucket):
            wanted = fold.latest.get(row.key)
            if wanted is not None and _same(row, wanted):
                agreeing.add(row.key)
            elif wanted is None and self._is_older(row):
                older += 1
            else:
                doubtful[row.key] = row
        differences = self._find_differences(bucket, fold, doubtful)
        missing = [
            Difference(Kind.MISSING, bucket, row.key, None, row)
            for row in self._remembered(fold.latest.values())
            if row.key not in agreeing and row.key not in doubtful
        ]
        count = len(agreeing) + len(doubtful) - len(differences)
        return Compared(bucket, fold.checkpoint, count, older, [*missing, *differences])

    def _find_differences(
        self, bucket: int, fold: _Fold, doubtful: Mapping[str, Row]
    ) -> Sequence[Difference]:
        """Return a difference for each of the *doubtful* rows that is not correct.

        A doubtful row is correct if it is an operation after the checkpoint.
        """
        self._read_on()  # a row may be from a page that was appended in the meantime
        right = {
            row.key
            for row in self.spill.rows(bucket)
            if row.page > fold.checkpoint and row.key in doubtful and _same(doubtful[row.key], row)
        }
        return [
            Difference(_kind(row, wanted), bucket, key, row, wanted)
            for key, row in doubtful.items()
            if key not in right
            for wanted in [fold.latest.get(key)]
        ]

    def _look(self) -> None:
        """Read the checkpoint before any row, so that the rows contain all pages up to it."""
        checkpoint = self.reader.checkpoints.checkpoints(self.feed).get(STATE, 0)
        self._read_on()
        if self._lost or self.page < checkpoint:
            head = self.reader.log.head(self.feed)
            raise LogIncomplete(feed=self.feed, page=self.page, checkpoint=checkpoint, head=head)
        self._checkpoint, self._checked_ms = checkpoint, self.reader.clock()

    def _fold(self, bucket: int) -> _Fold:
        """Return the fold up to the checkpoint that was read last."""
        checkpoint = self._checkpoint
        rows = self.spill.rows(bucket)
        return _Fold(checkpoint, {row.key: row for row in rows if row.page <= checkpoint})

    def _read_on(self) -> None:
        for _ in self._pages():
            pass

    def _pages(self) -> Iterator[int]:
        """Read the log from `page` up to the first hole; yield the last page of each read."""
        more = True
        while more:
            try:
                run = self.reader.read(self.feed, self.page)
            except PagesLost:
                self._lost = True  # reported by the next `_look`
                return
            if run.pages:
                self._spill(self._rows_in(run.pages))
                self._compare_archive(run.pages)
                self.page = run.pages[-1].number
            more = run.more
            yield self.page

    def _compare_archive(self, pages: Sequence[Page]) -> None:
        """Add to `conflicts` the pages of the log that the archive has with other content."""
        of_log, after, until = {page.number: page for page in pages}, self.page, pages[-1].number
        while self.archive and (run := self.archive.read(self.feed, after, until)):
            self.conflicts += [
                page.number for page in run if not _is_archived(of_log.get(page.number), page)
            ]
            after = run[-1].number

    def _read_archive(self, archive: ArchiveReader) -> Iterator[int]:
        """Read the archive up to the floor; yield the last page of each read.

        Begin with the first page after the last gap of the archive.
        """
        until = self.floor - 1
        self.floor = archive.begins(self.feed, until)
        self.page = self.floor - 1
        while pages := archive.read(self.feed, self.page, until):
            self._spill(self._rows_in(pages))
            self.page = pages[-1].number
            yield self.page

    def _spill(self, rows: Iterable[Row]) -> None:
        self.spill.add([row for row in rows if row.bucket in self.spill.buckets])

    def _rows_in(self, pages: Iterable[Page]) -> Iterator[Row]:
        for page in pages:
            yield from rows_of(page, tombstone_ms=self.tombstone_ms)

    def _is_older(self, row: Row) -> bool:
        """Return True if *row* is an operation below the floor, which the log does not have."""
        return row.is_complete and row.page < self.floor

    def _remembered(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if not self._forgotten(row)]

    def _forgotten(self, row: Row) -> bool:
        """Return True if *row* is an expired tombstone, which the store deletes later."""
        return row.deleted and 0 < row.expires_ms <= self.reader.clock() + limits.CLOCK_SKEW_MS_MAX


def _is_archived(logged: Page | None, archived: Page) -> bool:
    """Return True if *archived* is the page *logged*.

    It may be compacted. A running erasure has rewritten the log, but perhaps not the archive yet.
    """
    if logged is None or logged.at_ms != archived.at_ms:
        return False
    lines = dict(logged.entries())
    return all(
        slot in lines and (line == lines[slot] or _erasable(line, lines[slot]))
        for slot, line in archived.entries()
    )


def _erasable(line: str, logged: str) -> bool:
    """Return True if an erasure may have made the difference between *line* and *logged*."""
    if is_erased(line) or is_erased(logged):
        return True
    fields = [json.loads(each) for each in (line, logged)]
    for each in fields:
        each.update(parents=[], tags=[])  # an erased object is removed from these lists
    return bool(fields[0] == fields[1])


def differing(stored: Row, wanted: Row) -> list[str]:
    """Return the names of the fields that differ."""
    names = ("page", "slot", "at_ms", "line")
    unequal = [name for name in names if getattr(stored, name) != getattr(wanted, name)]
    return unequal if _expires_rightly(stored) else [*unequal, "expires_ms"]


def _same(stored: Row, wanted: Row) -> bool:
    """Return True if two rows of one key match."""
    return not differing(stored, wanted)


def _expires_rightly(row: Row) -> bool:
    """Return True if the expiry time is 0 for an existing object, or late enough for a tombstone.

    The exact expiry time of a tombstone depends on the retention when its row was written.
    """
    if not row.deleted:
        return row.expires_ms == 0
    return row.expires_ms >= row.at_ms + limits.TOMBSTONE_SLACK_MS


def _digest(row: Row) -> int:
    place = f"{row.key}\0{row.page} {row.slot} {row.at_ms} {_expires_rightly(row)}\0"
    digest = hashlib.blake2b((place + row.line).encode(), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "big")


def _kind(stored: Row, wanted: Row | None) -> Kind:
    if not stored.is_complete:
        return Kind.BROKEN
    if wanted is None:
        return Kind.ALIEN
    at, wanted_at = (stored.page, stored.slot), (wanted.page, wanted.slot)
    if at == wanted_at:
        return Kind.ALTERED
    return Kind.STALE if at < wanted_at else Kind.ALIEN


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair.

    *repaired* is the number of rows that were made to match the log. *moved* is the number of rows
    that were not repaired, because another process has changed them since the verification.
    """

    repaired: int
    moved: int

    def __add__(self, other: Repaired) -> Repaired:
        return Repaired(self.repaired + other.repaired, self.moved + other.moved)


@dataclass(frozen=True, slots=True)
class Rebuilder:
    verifier: Verifier
    repairs: StateStore

    def repair(self, bucket: int) -> Repaired:
        """Verify *bucket* again and repair the differences.

        Raises:
            LogIncomplete, Unavailable: see `Verifier.compare`. Repairs made so far remain.
        """
        differences = self.verifier.compare(bucket).differences
        repaired = 0
        for at in range(0, len(differences), limits.REPAIR_BATCH):
            batch = differences[at : at + limits.REPAIR_BATCH]
            repaired += sum(self.repairs.repair(self.verifier.feed, batch))
        return Repaired(repaired, len(differences) - repaired)
