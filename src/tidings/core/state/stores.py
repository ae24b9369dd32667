"""The stores of `state`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.state.differences import Difference
    from tidings.core.state.removed_parents import RemovedParents
    from tidings.core.state.rows import Lines, Overwritten, Row
    from tidings.core.state.sums import Sums


class RowReader(Protocol):
    """A `StateStore`, as far as who reads whole buckets needs one."""

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        """Rows of *bucket* in key order above key *after*, some 1 MB at most; [] at the end."""
        ...


class StateStore(RowReader, Protocol):
    """The latest operation of each object."""

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        """
        Put *rows*, one per object, but for those at whose place a row at or behind them stands.

        For each what it took the place of; None where that is not known, because such a row
        stands, be it the same one, or because what was there lacks its place. A request may land
        at any time, long after its caller died: it puts nothing back.

        Raises:
            Unavailable: of some rows nobody knows; the call may be repeated.
        """
        ...

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        """As `read`, the lines alone: half the work, and the end is known without another."""
        ...

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        """The rows of those objects that have one, in any order. Strongly consistent."""
        ...


def bucket_rows(
    states: RowReader, feed: str, bucket: int, after: str | None = None
) -> Iterator[Row]:
    """All rows of *bucket* in key order above key *after*, read as they are asked for."""
    while rows := states.read(feed, bucket, after):
        yield from rows
        after = rows[-1].key


class SumStore(Protocol):
    """The sums of the state of each feed, as they were stored last."""

    def read(self, feed: str) -> Sums | None:
        """None where none were stored. Strongly consistent."""
        ...

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        """
        Put *sums* over those of the version before theirs, which the caller has read or put.

        False where others stand there. *note* is the `note_of` all that changed since, or empty
        where no note tells it: a store may keep it in their place.
        """
        ...


class Repairs(Protocol):
    """The way to put right what a verification found wrong in the state."""

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        """
        Put each row that is wanted (None: delete the row) where just what was found still stands.

        For each whether it stands as wanted afterwards, by this call or another one.
        """
        ...


class RemovedParentsStore(Protocol):
    """Which parents the operations of a page took away from their objects."""

    def write(self, feed: str, departures: Sequence[RemovedParents]) -> None:
        """
        Put *departures*, one a page, but for pages that have some: the first ones stand.

        Raises:
            Unavailable: of some pages nobody knows; the call may be repeated.
        """
        ...

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        """
        Those of the pages *first* to *last* that are there, ascending. Strongly consistent.

        The expiry is left out (0).
        """
        ...
