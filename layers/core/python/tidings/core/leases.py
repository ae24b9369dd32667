"""The lease of a follower: who may handle the pages after a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """
    A hold on the follower *name* of *feed*.

    *fence* grows by one with each holder. *bell* counts the marks left by others: it is the
    count this holder has seen. *checkpoint* is the last page handled, 0 before the first, and
    *operations* how many were handled on the way there; both are stored together or not at all.
    """

    feed: str
    name: str
    owner: str
    fence: int
    bell: int
    checkpoint: int
    expires_ms: int
    operations: int = 0

    def held(self, now_ms: int) -> bool:
        """Whether somebody may be at work under it."""
        return self.owner != "" and self.expires_ms > now_ms
