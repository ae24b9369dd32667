"""The stores of `maintenance`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.state.rows import Row


class Spill(Protocol):
    """The operations of a log as rows, by bucket: more of them than memory may hold."""

    def add(self, rows: Sequence[Row]) -> None:
        """Add *rows* of any buckets behind those that are there."""

    def rows(self, bucket: int) -> Iterator[Row]:
        """Those of *bucket* in the order in which they were added, one by one."""
