"""The stores of `ingest`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.ingest.outbox import OutboxMessage


class Outbox(Protocol):
    """What owners of other tables left for each feed."""

    def pending(self, feed: str) -> Sequence[OutboxMessage]:
        """The oldest messages, some 1 MB at most; none where none is left. Strongly consistent."""

    def done(self, feed: str, message: OutboxMessage) -> None:
        """Remove it: its page is in the log."""

    def put_aside(self, feed: str, message: OutboxMessage, reason: str) -> None:
        """Remove it and keep it elsewhere, with the reason why it never can be appended."""
