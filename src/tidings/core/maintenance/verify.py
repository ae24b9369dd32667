"""
Compare the state with the log, and repair rows of the state that differ.

The fold of the log is the latest operation of each object. The log is read once and sorted by
bucket. Each bucket is then compared with its fold by a checksum, and row by row if the checksums
differ. A row is correct if it is the object's latest operation up to the checkpoint of the follower
`state`, or any later operation of the object, because rows are written before the checkpoint moves.
The checkpoint is read before the rows, and the end of the log after them. There are therefore no
false alarms, and the feed stays in use.

If the last operation of an object is below the floor, the log does not have it. Such rows are
counted, but not verified. With the archive, the log starts at the beginning of the archive. Even a
compacted archive has the latest operation of each object.

A repair replaces a row only if the row is still the one that the verification found, so no
concurrent write of the follower `state` is overwritten. A rebuild that is killed and run again has
the same result. A row that is older than the log is never changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.effects import has_passed
from tidings.core.errors import LogIncomplete
from tidings.core.log.reader import PagesLost
from tidings.core.model.feeds import STATE
from tidings.core.state.rows import Difference, Kind, bucket_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tidings.core.archive.reader import ArchiveReader
    from tidings.core.effects import Clock
    from tidings.core.log.reader import Reader
    from tidings.core.log.stores import Checkpoints
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row, StateStore


_DIGEST_BYTES = 16  # two digests are equal by chance once in 10^38
_SUMS = 1 << 8 * _DIGEST_BYTES


class Spill(Protocol):
    """The operations of a log as rows by bucket, possibly more than fit in memory."""

    def add(self, rows: Sequence[Row]) -> None:
        """Append *rows* of any buckets."""

    def rows(self, bucket: int) -> Iterator[Row]:
        """Yield the rows of *bucket* in the order in which they were added."""


@dataclass(frozen=True, slots=True)
class Compared:
    """
    The result of the comparison of *bucket* with the log up to page *checkpoint*.

    *agreeing* rows match the log. *older* rows have an operation below the floor.
    """

    bucket: int
    checkpoint: int
    agreeing: int
    older: int
    differences: Sequence[Difference] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows in the state."""
        return self.agreeing + self.older + sum(bool(each.stored) for each in self.differences)


@dataclass(frozen=True, slots=True)
class _Fold:
    """The latest operation of each object up to *checkpoint*."""

    checkpoint: int
    latest: Mapping[str, Row]


@dataclass(slots=True, kw_only=True)
class Verifier:
    """
    A verification of the *buckets* of a feed: `read`, then `compare` each of them.

    *floor* is the start of the log when the run started, or of the archive before it. *page* is the
    last page read.
    """

    feed: str
    states: StateStore
    checkpoints: Checkpoints
    reader: Reader
    spill: Spill
    clock: Clock
    tombstone_ms: int
    buckets: Collection[int] = range(limits.BUCKETS)
    archive: ArchiveReader | None = None
    floor: int = 1
    page: int = 0
    _checkpoint: int = 0
    _looked_ms: int = -limits.VERIFY_LOOK_MS
    _lost: bool = False

    def read(self) -> Iterator[int]:
        """Read the log from its floor to its end; yield the last page after each read."""
        self.floor = self.reader.log.floor(self.feed)
        self.page = self.floor - 1
        if self.archive:
            yield from self._archived(self.archive)
        yield from self._pages()

    def compare(self, bucket: int) -> Compared:
        """
        Compare *bucket* with the log.

        Raises:
            LogIncomplete: a page that a follower has handled is lost.
            Unavailable: a store does not answer.
        """
        if has_passed(self._looked_ms, self.clock(), limits.VERIFY_LOOK_MS):
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
        differences = self._judged(bucket, fold, doubtful)
        missing = [
            Difference(Kind.MISSING, bucket, row.key, None, row)
            for row in self._remembered(fold.latest.values())
            if row.key not in agreeing and row.key not in doubtful
        ]
        count = len(agreeing) + len(doubtful) - len(differences)
        return Compared(bucket, fold.checkpoint, count, older, [*missing, *differences])

    def _judged(
        self, bucket: int, fold: _Fold, doubtful: Mapping[str, Row]
    ) -> Sequence[Difference]:
        """
        Return the differences among *doubtful* rows that are not operations after the checkpoint.
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
        """Read the checkpoint before any row, so that the rows include at least the fold."""
        checkpoint = self.checkpoints.checkpoints(self.feed).get(STATE, 0)
        self._read_on()
        if self._lost or self.page < checkpoint:
            head = self.reader.log.head(self.feed)
            raise LogIncomplete(feed=self.feed, page=self.page, checkpoint=checkpoint, head=head)
        self._checkpoint, self._looked_ms = checkpoint, self.clock()

    def _fold(self, bucket: int) -> _Fold:
        """Return the fold up to the checkpoint that was read last."""
        checkpoint = self._checkpoint
        rows = self.spill.rows(bucket)
        return _Fold(checkpoint, {row.key: row for row in rows if row.page <= checkpoint})

    def _read_on(self) -> None:
        for _ in self._pages():
            pass

    def _pages(self) -> Iterator[int]:
        """
        Read the log after the last page up to its first hole; yield the last page after each read.
        """
        more = True
        while more:
            try:
                run = self.reader.read(self.feed, self.page)
            except PagesLost:
                self._lost = True  # reported by the next `_look`
                return
            if run.pages:
                self._spill(self._rows_in(run.pages))
                self.page = run.pages[-1].number
            more = run.more
            yield self.page

    def _archived(self, archive: ArchiveReader) -> Iterator[int]:
        """
        Read the archive below the floor, after its last hole; yield the last page after each read.
        """
        until = self.floor - 1
        self.floor = archive.begins(self.feed, until)
        self.page = self.floor - 1
        while pages := archive.read(self.feed, self.page, until):
            self._spill(self._rows_in(pages))
            self.page = pages[-1].number
            yield self.page

    def _spill(self, rows: Iterable[Row]) -> None:
        self.spill.add([row for row in rows if row.bucket in self.buckets])

    def _rows_in(self, pages: Iterable[Page]) -> Iterator[Row]:
        for page in pages:
            yield from rows_of(page, tombstone_ms=self.tombstone_ms)

    def _is_older(self, row: Row) -> bool:
        """Return True if the row is older than the log, so that the log cannot verify it."""
        return row.whole and row.page < self.floor

    def _remembered(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if not self._forgotten(row)]

    def _forgotten(self, row: Row) -> bool:
        """
        Return True if the row may be deleted, as tombstones are some time after they expire.
        """
        return row.deleted and 0 < row.expires_ms <= self.clock() + limits.CLOCK_SKEW_MS_MAX


def differing(stored: Row, wanted: Row) -> list[str]:
    """Return the names of the fields that differ."""
    names = ("page", "slot", "at_ms", "line")
    unequal = [name for name in names if getattr(stored, name) != getattr(wanted, name)]
    return unequal if _expires_rightly(stored) else [*unequal, "expires_ms"]


def _same(stored: Row, wanted: Row) -> bool:
    """Return True if two rows of one key match."""
    return not differing(stored, wanted)


def _expires_rightly(row: Row) -> bool:
    """
    Return True if the expiry is 0 for a living object, or late enough for a deleted one.

    The exact time depends on the retention when the row was written.
    """
    if not row.deleted:
        return row.expires_ms == 0
    return row.expires_ms >= row.at_ms + limits.TOMBSTONE_SLACK_MS


def _digest(row: Row) -> int:
    place = f"{row.key}\0{row.page} {row.slot} {row.at_ms} {_expires_rightly(row)}\0"
    digest = hashlib.blake2b((place + row.line).encode(), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "big")


def _kind(stored: Row, wanted: Row | None) -> Kind:
    if not stored.whole:
        return Kind.BROKEN
    if wanted is None:
        return Kind.ALIEN
    at, wanted_at = (stored.page, stored.slot), (wanted.page, wanted.slot)
    if at == wanted_at:
        return Kind.ALTERED
    return Kind.STALE if at < wanted_at else Kind.ALIEN


@dataclass(frozen=True, slots=True)
class Repaired:
    """
    The result of a repair.

    *repaired* rows now match the log. *moved* rows were changed by another process since the
    verification.
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
        """
        Verify *bucket* again and repair the differences.

        Raises:
            LogIncomplete, Unavailable: as `Verifier.compare`; completed repairs remain.
        """
        differences = self.verifier.compare(bucket).differences
        repaired = 0
        for at in range(0, len(differences), limits.REPAIR_BATCH):
            batch = differences[at : at + limits.REPAIR_BATCH]
            repaired += sum(self.repairs.repair(self.verifier.feed, batch))
        return Repaired(repaired, len(differences) - repaired)
