"""The lease of a follower. Only the holder of the lease may handle the pages after the checkpoint.

The expiry of a lease is not decided by comparing the clocks of two processes. A process that cannot
take the lease observes it instead. Each renewal increments a counter, so two reads of the same
value mean that there was no renewal between them. A holder that has not renewed its lease for
`limits.LEASE_MS` has ended, because no run takes longer.
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
    """The lease on the follower *name* of *feed*.

    *fence* increases with each holder, *beat* with each renewal. Another process that wants to run
    the follower leaves a mark, and the holder then looks for new pages before it releases the
    lease; *marks* is the number of marks that the holder has seen. *checkpoint* is the last page
    handled, 0 before the first, and *operations* the number of operations handled up to
    *checkpoint*. One write stores *checkpoint*, *operations* and *note*, which is data of the
    handler for the next holder, of at most `limits.NOTE_BYTES_MAX`. *expires_ms* is a time on the
    clock of the holder. It is a hint for reports and for the decision to observe the lease; it
    never permits a takeover. *look* names the last observation that began, see `next_look`.
    *erases* is True on a stage, in the lease of `state`, if the feed has ever had an erasure.
    """

    feed: str
    name: str
    owner: str
    fence: int
    marks: int
    checkpoint: int
    expires_ms: int
    operations: int = 0
    beat: int = 0
    look: str = field(default="", compare=False)
    note: bytes = b""
    erases: bool = field(default=False, compare=False)

    def is_held(self, now_ms: int) -> bool:
        """Return True if a process seems to hold the lease and to be alive."""
        return self.owner != "" and self.expires_ms > now_ms

    def is_late(self, now_ms: int) -> bool:
        """Return True if a renewal seems late, so that another process should observe the lease.

        If the last renewal is too far in the future, a clock is wrong, so the lease counts as late.
        """
        age_ms = now_ms - (self.expires_ms - limits.LEASE_MS)
        recent = -limits.CLOCK_SKEW_MS_MAX <= age_ms < limits.LEASE_LATE_MS
        return self.owner != "" and not recent

    def next_look(self, now_ms: int) -> str:
        """Return the name of an observation that may begin now: the fence, the beat and the minute.

        Return "" if the holder is not late, or if an observation has begun in this minute or a
        later one. A later minute is from a process with a clock that is ahead. It also prevents an
        observation, because two processes with different clocks would otherwise start observations
        in turn.
        """
        if not self.is_late(now_ms):
            return ""
        at, minute = f"{self.fence}.{self.beat}", now_ms // limits.LEASE_LOOK_AGAIN_MS
        begun_at, _, begun = self.look.rpartition(".")
        return "" if begun_at == at and int(begun) >= minute else f"{at}.{minute}"


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation that the lease with this *fence* and *beat* has been unchanged for *ms*.

    Each observing process adds the time that it slept, and passes the observation to the next
    process with a wake-up. The delivery time of the wake-up does not count.
    """

    fence: int
    beat: int
    ms: int = 0

    def is_of(self, lease: Lease) -> bool:
        """Return True if *lease* is unchanged since the observation."""
        return (self.fence, self.beat) == (lease.fence, lease.beat)

    @property
    def is_long_enough(self) -> bool:
        """Return True if the holder has ended. A takeover checks that it is unchanged."""
        return self.ms >= limits.LEASE_MS


class FollowerStore(Checkpoints, Protocol):
    """The checkpoint and the lease of each follower of a feed."""

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        """Take the lease if it is free, or if it is unchanged since the observation *over*.

        Taking the lease increases the fence by one. Return the lease that is stored afterwards. The
        call has taken the lease if the owner of the returned lease is *owner*.
        """

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        """Leave a mark for the holder of the lease; return the `look` that was stored until now.

        If *look* is not empty, store *look*, so that other processes do not begin an observation.
        If the lease is free, return None and leave no mark.
        """

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        """Move the checkpoint, store `lease.operations` and `lease.note` with it; renew it.

        Raises:
            LeaseLost: the fence has changed. Nothing was written.
        """

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        """Store checkpoint, operations and note, and release the lease unless it has a new mark.

        Return True if the lease is released, or was lost before. If the stored lease has more marks
        than `lease.marks`, write nothing, keep the lease and return False. With *force*, release
        the lease in spite of new marks.
        """

    def leases(self, feed: str) -> Sequence[Lease]:
        """Return the stored lease of each follower, held or free, sorted by name."""


class Waker(Protocol):
    """A way to wake a function without waiting for it."""

    def wake(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """Request a run of the follower; the request may be lost, repeated or late.

        With an *observation*, the run continues to observe a lease, and takes the lease over if its
        holder has ended.
        """

    def replay(self, connection_id: str) -> None:
        """Request a run of the replay of a connection; it may be lost, repeated or late."""
