"""The rows of the state. The row of an object has its latest operation.

The row of a deleted object is called a tombstone. It expires after some time.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidings.core import limits
from tidings.core.model.operations import DELETION, WITHOUT_OBJECT, event_of, is_erasure, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidings.core.model.pages import Page

    ReadRows = Callable[[str, int, str | None], list["Row"]]  # `StateStore.read`


ABSENT = -1  # replaces a number that a stored row lacks, because another program changed the row


class Row(NamedTuple):
    """The latest operation of the object *key*, with the *line* that is in the log at (page, slot).

    *at_ms* is the commit time of the page. *expires_ms* is 0 unless the row is a tombstone.
    """

    key: str
    page: int
    slot: int
    at_ms: int
    line: str
    expires_ms: int = 0

    @property
    def is_complete(self) -> bool:
        """Return True if no number is absent and the line is not empty."""
        return self.line != "" and ABSENT not in (self.page, self.slot, self.at_ms)

    @property
    def lives(self) -> bool:
        """Return True if the row counts in the sums: it is complete and not a tombstone."""
        return not self.expires_ms and self.is_complete

    @property
    def deleted(self) -> bool:
        return event_of(self.line) == "delete"

    @property
    def bucket(self) -> int:
        return bucket_of(self.key)


class Overwritten(NamedTuple):
    """The position of a row that was replaced, and its `Row.lives`."""

    page: int
    slot: int
    lives: bool


NOTHING = Overwritten(0, 0, lives=False)  # the value for an object that had no row


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of some rows of a bucket, with the page of each.

    The next rows follow the key *after*, which is None at the end of the bucket.
    """

    lines: list[str]
    pages: list[int]
    after: str | None


class Kind(Enum):
    """How a stored row differs from the log."""

    MISSING = "missing"  # the log has the object, but the state has no row
    STALE = "stale"  # the row is an earlier operation
    ALTERED = "altered"  # the row has the right position but another content
    ALIEN = "alien"  # the log has no such operation of the object
    BROKEN = "broken"  # the row lacks its position, time or line


@dataclass(frozen=True, slots=True)
class Difference:
    """The row *stored* under *key* in *bucket*, and the row *wanted* according to the log.

    *stored* or *wanted* is None if there is no such row.
    """

    kind: Kind
    bucket: int
    key: str
    stored: Row | None
    wanted: Row | None


class StateStore(Protocol):
    """A store of the latest operation of each object."""

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        """Return the next rows of *bucket* above key *after*, about 1 MB; [] at the end."""

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        """Put each of *rows*, one per object, unless the stored row has this or a later position.

        Therefore a request that arrives long after its caller crashed does not restore an older
        row. Return for each of *rows* the row that it replaced, which is `NOTHING` if the object
        had no row. Return None instead if the new row was not put, or if the replaced row had no
        position.

        Raises:
            Unavailable: the result of some rows is unknown; the call may be repeated.
        """

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        """Return only the lines and pages of the rows that `read` would return: half the work."""

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        """Return the rows that exist for *keys*, in any order, strongly consistent."""

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        """Put the row *wanted* of each difference, or delete the row if *wanted* is None.

        Change nothing if the row *stored* has changed in the meantime. Return for each difference
        True if the state now is as wanted, because of this call or another one.
        """


def bucket_rows(read: ReadRows, feed: str, bucket: int, after: str | None = None) -> Iterator[Row]:
    """Yield all rows of *bucket* above key *after*, in key order; read them when needed."""
    while rows := read(feed, bucket, after):
        yield from rows
        after = rows[-1].key


def bucket_of(key: str) -> int:
    """Return the bucket of *key*. The result must never change, because stores depend on it."""
    return zlib.crc32(key.encode()) % limits.BUCKETS


def project(
    pages: Iterable[Page],
    *,
    tombstone_ms: int,
    now_ms: int = 0,
    on_erasure: Callable[[Row], object] | None = None,
) -> list[Row]:
    """Return the last operation of each object in *pages* as a row.

    Call *on_erasure* with each entry that records an erasure.

    A tombstone expires at least `limits.RETENTION_MS_MIN` after *now_ms*, even if the pages are
    old. If it expired earlier, an older write of the object that is still in flight would restore
    the object.
    """
    latest: dict[str, Row] = {}
    soon_ms = now_ms + limits.RETENTION_MS_MIN
    for page in pages:
        for row in rows_of(page, tombstone_ms=tombstone_ms):
            if row.expires_ms:
                if on_erasure and is_erasure(row.line):
                    on_erasure(row)
                row = row._replace(expires_ms=max(row.expires_ms, soon_ms))
            latest[row.key] = row
    return [*latest.values()]


def rows_of(page: Page, *, tombstone_ms: int) -> list[Row]:
    """Return each operation of *page* as the row of its object, as if no operation followed."""
    rows, number, at_ms = [], page.number, page.at_ms
    for slot, line in page.entries():
        if not line.endswith(WITHOUT_OBJECT):
            expires_ms = at_ms + tombstone_ms if line.startswith(DELETION) else 0
            rows.append(Row(key_of(line), number, slot, at_ms, line, expires_ms))
    return rows
