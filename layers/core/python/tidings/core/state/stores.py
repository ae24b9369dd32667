"""The stores of `state`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.state.differences import Difference
    from tidings.core.state.removed_parents import RemovedParents
    from tidings.core.state.rows import Lines, Row


class StateStore(Protocol):
    """The latest operation of each object."""

    def write(self, feed: str, rows: Sequence[Row]) -> int:
        """
        Put *rows*, one per object, but for those at whose place a row at or behind them stands.

        How many were left out because another row stands. A request may land at any time, long
        after its caller died: it puts nothing back.

        Raises:
            Unavailable: of some rows nobody knows; the call may be repeated.
        """
        ...

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        """Rows of *bucket* in key order above key *after*, some 1 MB at most; [] at the end."""
        ...

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        """As `read`, the lines alone: half the work, and the end is known without another."""
        ...

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        """The rows of those objects that have one, in any order. Strongly consistent."""
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
