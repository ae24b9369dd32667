"""
Clusters: deployments that follow one master agree who reads it.

There are as many seats as leaders. Who holds a seat renews it; one that was not renewed in time
may be taken by any member, with the next term. A leader reads the master, a follower a leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core import limits
from tidings.core.deadlines import is_ahead
from tidings.core.replication.source import Role


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """
    Seat *number*, from 0 on, of *cluster*: held by the member at *address* until *until_ms*.

    *term* grows by one with each holder; 0 was never held. *address* is "" where it was given up.
    """

    cluster: str
    number: int
    address: str = ""
    term: int = 0
    until_ms: int = 0

    def held(self, now_ms: int) -> bool:
        return self.address != "" and is_ahead(self.until_ms, now_ms, limits.SEAT_MS)


@dataclass(frozen=True, slots=True)
class Member:
    """A deployment's feed that was heard of at *heard_ms*, with the last page it has."""

    cluster: str
    address: str
    feed: str
    role: Role
    checkpoint: int
    heard_ms: int
