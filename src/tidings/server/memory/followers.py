"""Checkpoints and leases of followers that run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.leases import Observation


@dataclass
class _Follower:
    owner: str = ""
    expires_ms: int = 0
    fence: int = 0
    beat: int = 0
    bell: int = 0
    look: str = ""
    # Checkpoint, operations and note are replaced as one tuple, so that `all_checkpoints` needs no
    # lock.
    saved: tuple[int, int, bytes] = (0, 0, b"")

    def renew(self, now_ms: int) -> None:
        self.expires_ms = now_ms + limits.LEASE_MS
        self.beat += 1


class MemoryFollowers:
    """Implements `FollowerStore`, `Checkpoints` and `Standings`."""

    def __init__(self) -> None:
        self._followers: dict[tuple[str, str], _Follower] = {}
        self._lock = Lock()

    def take(
        self, feed: str, name: str, *, owner: str, now_ms: int, over: Observation | None = None
    ) -> Lease:
        with self._lock:
            follower = self._followers.setdefault((feed, name), _Follower())
            if not follower.owner or (over and over.is_of(_lease(feed, name, follower))):
                follower.owner = owner
                follower.fence += 1
                follower.renew(now_ms)
            return _lease(feed, name, follower)

    def mark(self, feed: str, name: str, *, look: str = "") -> str | None:
        with self._lock:
            follower = self._followers.get((feed, name))
            if follower is None or not follower.owner:
                return None
            follower.bell += 1
            before, follower.look = follower.look, look or follower.look
            return before

    def save(self, lease: Lease, checkpoint: int, *, now_ms: int) -> Lease:
        with self._lock:
            follower = self._of(lease)
            if follower is None:
                raise LeaseLost(feed=lease.feed, follower=lease.name, fence=lease.fence)
            follower.saved = checkpoint, lease.operations, lease.note
            follower.renew(now_ms)
            return _lease(lease.feed, lease.name, follower)

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        with self._lock:
            follower = self._of(lease)
            if follower is None:
                return True
            if follower.bell != lease.bell and not force:
                return False
            follower.saved = lease.checkpoint, lease.operations, lease.note
            follower.owner, follower.expires_ms = "", 0
            return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        with self._lock:
            return {
                name: follower.saved[0]
                for (of, name), follower in sorted(self._followers.items())
                if of == feed
            }

    def standings(self, feed: str) -> Sequence[Lease]:
        with self._lock:
            return [
                _lease(feed, name, follower)
                for (of, name), follower in sorted(self._followers.items())
                if of == feed
            ]

    def stand(
        self, feed: str, name: str, checkpoint: int, operations: int = 0, note: bytes = b""
    ) -> None:
        """Set the checkpoint of a follower that does not run."""
        with self._lock:
            self._followers[feed, name] = _Follower(saved=(checkpoint, operations, note))

    def all_checkpoints(self) -> frozenset[tuple[str, str, int, int, bytes]]:
        """
        Return feed, name, checkpoint, operations and note of each follower.

        It does not lock, because the event loop calls it at each commit.
        """
        return frozenset((*at, *each.saved) for at, each in list(self._followers.items()))

    def _of(self, lease: Lease) -> _Follower | None:
        """Return the follower if *lease* still holds it, else None."""
        follower = self._followers.get((lease.feed, lease.name))
        if follower and (follower.fence, follower.owner) == (lease.fence, lease.owner):
            return follower
        return None


def _lease(feed: str, name: str, follower: _Follower) -> Lease:
    checkpoint, operations, note = follower.saved
    return Lease(
        feed,
        name,
        owner=follower.owner,
        fence=follower.fence,
        bell=follower.bell,
        checkpoint=checkpoint,
        expires_ms=follower.expires_ms,
        operations=operations,
        beat=follower.beat,
        look=follower.look,
        note=note,
    )
