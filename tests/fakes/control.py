"""Who reads a feed and how far, and what became of requests with an Idempotency-Key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import LeaseLost
from tidings.core.followers.leases import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.leases import Observation
    from tidings.core.log.idempotency import Claim


@dataclass
class _Follower:
    owner: str = ""
    expires_ms: int = 0
    fence: int = 0
    beat: int = 0
    bell: int = 0
    look: str = ""
    checkpoint: int = 0
    operations: int = 0

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
            follower.checkpoint, follower.operations = checkpoint, lease.operations
            follower.renew(now_ms)
            return _lease(lease.feed, lease.name, follower)

    def release(self, lease: Lease, *, force: bool = False) -> bool:
        with self._lock:
            follower = self._of(lease)
            if follower is None:
                return True
            if follower.bell != lease.bell and not force:
                return False
            follower.checkpoint, follower.operations = lease.checkpoint, lease.operations
            follower.owner, follower.expires_ms = "", 0
            return True

    def checkpoints(self, feed: str) -> dict[str, int]:
        with self._lock:
            return {
                name: follower.checkpoint
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

    def _of(self, lease: Lease) -> _Follower | None:
        """The follower that *lease* still holds."""
        follower = self._followers.get((lease.feed, lease.name))
        if follower and (follower.fence, follower.owner) == (lease.fence, lease.owner):
            return follower
        return None


def _lease(feed: str, name: str, follower: _Follower) -> Lease:
    return Lease(
        feed,
        name,
        owner=follower.owner,
        fence=follower.fence,
        bell=follower.bell,
        checkpoint=follower.checkpoint,
        expires_ms=follower.expires_ms,
        operations=follower.operations,
        beat=follower.beat,
        look=follower.look,
    )


class MemoryClaims:
    """Implements `ClaimStore`."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Claim] = {}
        self._lock = Lock()

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        with self._lock:
            return self._live(feed, key, now_ms)

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        with self._lock:
            standing = self._live(feed, claim.key, now_ms)
            if standing is not None:
                return standing
            self._claims[feed, claim.key] = claim
            return claim

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        with self._lock:
            standing = self._claims.get((feed, claim.key), claim)
            if (standing.append_id, standing.page) != (claim.append_id, claim.page):
                return standing
            moved = replace(claim, page=page)
            self._claims[feed, claim.key] = moved
            return moved

    def _live(self, feed: str, key: str, now_ms: int) -> Claim | None:
        claim = self._claims.get((feed, key))
        return claim if claim is not None and claim.expires_ms > now_ms else None
