"""
The lease of a follower: which process may handle the pages after a checkpoint.

Clocks of different processes are never compared. A process that finds the lease held observes it:
each renewal increments a counter, so two observations of the same counter mean that there was no
renewal between them. A holder that has not renewed for `limits.LEASE_MS` has ended, because the
time limit of its function is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.log.stores import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Lease:
    """
    A hold on the follower *name* of *feed*.

    *fence* grows by one with each holder, *beat* with each renewal. *bell* counts the marks left
    by others: it is the count this holder has seen. *checkpoint* is the last page handled, 0
    before the first, and *operations* how many were handled on the way there; both are stored
    together or not at all, with the *note* that the handler leaves for the next holder, at most
    `limits.NOTE_BYTES_MAX`. *expires_ms* is by the clock of the holder: a hint, for a report and
    for who asks whether to look on, never a right to take over. *look* names the last look
    that began, see `next_look`.
    """

    feed: str
    name: str
    owner: str
    fence: int
    bell: int
    checkpoint: int
    expires_ms: int
    operations: int = 0
    beat: int = 0
    look: str = field(default="", compare=False)
    note: bytes = b""

    def held(self, now_ms: int) -> bool:
        """Whether somebody seems to be at work under it."""
        return self.owner != "" and self.expires_ms > now_ms

    def is_late(self, now_ms: int) -> bool:
        """
        Whether its holder seems to be late with a renewal, so that somebody should look on.

        A renewal from the future was written by a clock that is wrong: it says nothing.
        """
        age_ms = now_ms - (self.expires_ms - limits.LEASE_MS)
        recent = -limits.CLOCK_SKEW_MS_MAX <= age_ms < limits.LEASE_LATE_MS
        return self.owner != "" and not recent

    def next_look(self, now_ms: int) -> str:
        """
        The name of a look that may begin now: the fence, the beat and the minute.

        Empty where the holder is not late, and where a look of this minute has begun. So has one
        of a later minute, by a clock that is ahead: two clocks must not wake each other in turn.
        """
        if not self.is_late(now_ms):
            return ""
        at, minute = f"{self.fence}.{self.beat}", now_ms // limits.LEASE_LOOK_AGAIN_MS
        begun_at, _, begun = self.look.rpartition(".")
        return "" if begun_at == at and int(begun) >= minute else f"{at}.{minute}"


@dataclass(frozen=True, slots=True)
class Observation:
    """
    The lease with this *fence* and *beat* stood still for *ms*.

    Each process that looks on adds the time that it slept between two looks, and hands the
    observation to the next one with a wake-up. The way between them does not count.
    """

    fence: int
    beat: int
    ms: int = 0

    def is_of(self, lease: Lease) -> bool:
        """Whether *lease* still is what was looked at."""
        return (self.fence, self.beat) == (lease.fence, lease.beat)

    @property
    def is_long_enough(self) -> bool:
        """Whether the holder is dead, if the lease is still the same when it is taken over."""
        return self.ms >= limits.LEASE_MS


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
