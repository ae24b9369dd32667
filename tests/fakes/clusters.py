"""The seats and members of clusters."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from tidings.core.replication.clusters import LeaderLease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.replication.clusters import Member


class MemoryCoordinator:
    """Implements `Coordinator`."""

    def __init__(self) -> None:
        self._seats: dict[tuple[str, int], LeaderLease] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._lock = Lock()

    def seats(self, cluster: str) -> Sequence[LeaderLease]:
        with self._lock:
            return [seat for (of, _), seat in sorted(self._seats.items()) if of == cluster]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        key = after.cluster, after.number
        with self._lock:
            there = self._seats.get(key, LeaderLease(*key))
            if (there.term, there.until_ms) != (before.term, before.until_ms):
                return False
            self._seats[key] = after
            return True

    def announce(self, member: Member) -> None:
        with self._lock:
            self._members[member.cluster, member.address] = member

    def members(self, cluster: str) -> Sequence[Member]:
        with self._lock:
            return [each for (of, _), each in sorted(self._members.items()) if of == cluster]
