"""Elect the leaders of a cluster.

A cluster is a set of deployments, its members, that copy the same master. It has one leader lease
for each leader. A member that holds a lease is a leader: it renews the lease and reads the master.
A member without a lease reads a leader. When a lease is free or has expired, one of these members
takes the lease with the next term. The logs stay correct even if members disagree about leaders,
because each member writes only its own log, and only the pages that follow its own checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import Unavailable
from tidings.core.records import Kind, Layout, Records, enum_codec
from tidings.core.replication.source import Role, hash_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.records import RecordStore
    from tidings.core.replication.relay import Relay
    from tidings.core.replication.source import Source


# Time between two announcements. A member stays listed if two announcements are lost.
_ANNOUNCE_MS = limits.MEMBER_MS // 3


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """Leader lease *number* (from 0) of *cluster*, of the member at *address* until *until_ms*.

    *term* grows by one with each holder; 0 means that no member has held the lease yet. *address*
    is "" after the holder released the lease.
    """

    cluster: str
    number: int
    address: str = ""
    term: int = 0
    until_ms: int = 0

    def is_held(self, now_ms: int) -> bool:
        return self.address != "" and is_ahead(self.until_ms, now_ms, limits.LEADER_LEASE_MS)


@dataclass(frozen=True, slots=True)
class Member:
    """A deployment's feed in a cluster, its last page, and the time of its last announcement."""

    cluster: str
    address: str
    feed: str
    role: Role
    checkpoint: int
    heard_ms: int

    def is_alive(self, now_ms: int) -> bool:
        """Return True if the member has announced itself in the last `limits.MEMBER_MS`."""
        return is_ahead(self.heard_ms + limits.MEMBER_MS, now_ms, limits.MEMBER_MS)


LEASES, MEMBERS = Kind("leader-lease", "seat"), Kind("member")
_LEASE = Layout(
    LeaderLease,
    {"until_ms": "until"},
    {"number": (lambda number: f"{number:03d}", int)},
    feed="cluster",
    name="number",
    always=("term", "until_ms"),
)
_MEMBER = Layout(
    Member, {"heard_ms": "heard"}, {"role": enum_codec(Role)}, feed="cluster", name="address"
)


class Coordinator:
    """A store of the leader leases and the members of clusters, in the place of feeds.

    Leases are kept forever, because their terms must not restart. Each method raises:
        Unavailable: the store did not answer.
    """

    def __init__(self, records: RecordStore) -> None:
        self._leases = Records(records, LEASES, _LEASE)
        self._members = Records(records, MEMBERS, _MEMBER)

    def leases(self, cluster: str) -> Sequence[LeaderLease]:
        """Return the leases that were ever taken, in order of `number`, strongly consistent."""
        return [*self._leases.all(cluster)]

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        """Replace *before* by *after* if the stored term and time are those of *before*.

        Return True if *before* was replaced.
        """
        expected = (
            {"term": before.term, "until": before.until_ms} if before.term else {"term": None}
        )
        write = self._leases.put(after)._replace(expected=expected)
        return self._leases.store.write(after.cluster, [write])

    def announce(self, member: Member) -> None:
        """Store *member*."""
        until_ms = member.heard_ms + limits.MEMBER_KEPT_MS
        self._members.save(member.cluster, member, expires_ms=until_ms)

    def members(self, cluster: str) -> Sequence[Member]:
        """Return the announced members in the order of their addresses."""
        return [*self._members.all(cluster)]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The role of a deployment, and the *url* that it reads.

    *url* is "" if a follower has no leader to read. *term* is the term of a leader's lease.
    """

    role: Role
    url: str
    term: int = 0


@dataclass(slots=True, kw_only=True)
class Elector:
    """The election of one feed's role in its cluster, during one run of its relay."""

    feed: str
    source: Source
    coordinator: Coordinator | None
    runtime: Runtime
    _last: Assignment | None = None
    _checked_ms: int = 0
    _announced_ms: int = -_ANNOUNCE_MS
    _pause_until_ms: int = 0

    def assignment(self, relay: Relay) -> Assignment:
        """Return the current assignment.

        The coordinator is queried at most once in `limits.LEADER_LEASE_RENEW_MS`. If it does not
        answer, return the last assignment.
        """
        if self.source.role is not Role.ELECTED:
            return static_assignment(self.source)
        steady = self.runtime.steady()
        if self._last is None or steady - self._checked_ms >= limits.LEADER_LEASE_RENEW_MS:
            before = self._last or previous_assignment(self.source, relay)
            self._last, self._checked_ms = self._next(relay, before, self.runtime.clock()), steady
        return self._last

    def leave(self) -> None:
        """Release the lease, so that other members need not wait until it expires."""
        if self.source.role is not Role.ELECTED or self.coordinator is None:
            return
        try:
            for lease in self._leases(self.coordinator):
                if lease.address == self.source.address:
                    self.coordinator.take(lease, _release(lease))
        except Unavailable:
            self.runtime.count("CoordinatorLost", 1)

    def _next(self, relay: Relay, before: Assignment, now: int) -> Assignment:
        if self.coordinator is None:
            return before
        try:
            found = self._elect(self.coordinator, relay, now)
            steady = self.runtime.steady()
            if found.role is not before.role or steady - self._announced_ms >= _ANNOUNCE_MS:
                self.coordinator.announce(
                    Member(
                        cluster=self.source.cluster,
                        address=self.source.address,
                        feed=self.feed,
                        role=found.role,
                        checkpoint=relay.checkpoint,
                        heard_ms=now,
                    )
                )
                self._announced_ms = steady
        except Unavailable:
            self.runtime.count("CoordinatorLost", 1)
            return before
        return found

    def _elect(self, coordinator: Coordinator, relay: Relay, now: int) -> Assignment:
        leases, address = self._leases(coordinator), self.source.address
        until_ms = now + limits.LEADER_LEASE_MS
        mine = next(
            (each for each in leases if each.is_held(now) and each.address == address), None
        )
        if mine is not None and self._must_yield(coordinator, relay, leases, now):
            coordinator.take(mine, _release(mine))
            self._pause_until_ms = self.runtime.steady() + limits.LEADER_LEASE_REST_MS
        elif mine is not None:
            if coordinator.take(mine, replace(mine, until_ms=until_ms)):
                return Assignment(Role.LEADER, self.source.url, mine.term)
        elif self.runtime.steady() >= self._pause_until_ms and (free := free_lease(leases, now)):
            acquired = replace(free, address=address, term=free.term + 1, until_ms=until_ms)
            if coordinator.take(free, acquired):
                return Assignment(Role.LEADER, self.source.url, acquired.term)
        return Assignment(Role.FOLLOWER, leader_of(leases, address, now))

    def _must_yield(
        self, coordinator: Coordinator, relay: Relay, leases: Sequence[LeaderLease], now: int
    ) -> bool:
        """Return True if this leader cannot read the master, and another member could lead."""
        if relay.role is not Role.LEADER or relay.failures < limits.LEADER_LEASE_FAILURES:
            return False
        leaders = {lease.address for lease in leases if lease.is_held(now)}
        return any(
            member.is_alive(now) and member.address not in leaders
            for member in coordinator.members(self.source.cluster)
        )

    def _leases(self, coordinator: Coordinator) -> list[LeaderLease]:
        """Return one lease per leader, including leases that no member has taken yet."""
        cluster = self.source.cluster
        leases = {lease.number: lease for lease in coordinator.leases(cluster)}
        numbers = range(self.source.leaders)
        return [leases.get(number, LeaderLease(cluster, number)) for number in numbers]


def static_assignment(source: Source) -> Assignment:
    """Return the assignment of a role that is configured instead of elected."""
    if source.role is Role.FOLLOWER:
        return Assignment(Role.FOLLOWER, source.leader)
    return Assignment(Role.LEADER, source.url)


def previous_assignment(source: Source, relay: Relay) -> Assignment:
    """Return the assignment of the previous run. Before the first run, the role is leader."""
    if relay.role is Role.FOLLOWER and relay.upstream:
        return Assignment(Role.FOLLOWER, relay.upstream)
    return Assignment(Role.LEADER, source.url, relay.term)


def free_lease(leases: Iterable[LeaderLease], now_ms: int) -> LeaderLease | None:
    return next((lease for lease in leases if not lease.is_held(now_ms)), None)


def leader_of(leases: Iterable[LeaderLease], address: str, now_ms: int) -> str:
    """Return the address of the leader that the follower at *address* reads, "" without a leader.

    The hash of *address* selects the leader, so that the followers are spread over the leaders.
    """
    leaders = [each.address for each in leases if each.is_held(now_ms) and each.address != address]
    return leaders[hash_of(address) % len(leaders)] if leaders else ""


def _release(lease: LeaderLease) -> LeaderLease:
    return replace(lease, address="", until_ms=0)
