"""The stores of `archive`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.archive.segments import Span


class ArchiveStore(Protocol):
    """The parts of each feed: objects that are written whole, each in place of the one before."""

    def put(self, feed: str, span: Span, body: bytes) -> None:
        """Keep *body* as the part *span*; it is kept when this returns."""

    def get(self, feed: str, span: Span) -> bytes | None:
        """The part *span*; None where there is none."""

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        """
        The parts that end behind page *after*, in their order, at most *limit*.

        Strongly consistent: a part whose `put` returned before the call is seen.
        """

    def remove(self, feed: str, span: Span) -> None:
        """Remove the part; nothing happens where there is none."""
