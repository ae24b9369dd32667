"""The stores of `followers`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidings.core.log.stores import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.leases import Lease, Observation


class FollowerStore(Protocol):
    """Checkpoint and lease of every named reader of a feed."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        """
        Take the lease if nobody holds it, or if it still is what *over* has seen.

        The fence grows by one. The lease that stands afterwards: ours, if *owner* is its owner.
        """

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        """
        Leave a mark for the holder, and *look*, if any, for others who find the lease held.

        The look of before; None when nobody holds the lease any more: nothing is left.
        """

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        """
        Move the checkpoint, store `lease.operations` and `lease.note` with it, renew the lease.

        Raises:
            LeaseLost: the fence moved on. Nothing was written.
        """

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        """
        Store checkpoint, operations and note and let go, unless a mark was left since `lease.bell`.

        True when let go or lost already; False when a mark was left: nothing was written and
        the lease is still held. *force* lets go in spite of a mark.
        """


class Waker(Protocol):
    """The way to wake a function without waiting for it."""

    def ring(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """
        Run the follower soon; may be lost, repeated or late.

        With an *observation* it goes on looking at a lease, and takes it over in the end.
        """

    def replay(self, connection_id: str) -> None:
        """Run the catch-up of a connection soon; may be lost, repeated or late."""


class Standings(Checkpoints, Protocol):
    """Where the followers of a feed stand, and who is at work."""

    def standings(self, feed: str) -> Sequence[Lease]:
        """The lease of each follower as it is stored, held or not, by name."""
