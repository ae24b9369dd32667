"""
Electing: which member of a cluster reads the master, and whom the others read.

There are as many seats as leaders. Who has one renews it and reads the master; who has none takes
one that is free or was not renewed, and reads a leader until then. Whatever members believe, the
log is safe: each writes its own alone, and only what follows its own checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.replication.clusters import LeaderLease, Member
from tidings.core.replication.selection import hash_of
from tidings.core.replication.source import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.core.effects import Clock, Count
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.source import Source
    from tidings.core.replication.stores import Coordinator

_ANNOUNCE_MS = limits.MEMBER_MS // 3  # two of three may be lost


@dataclass(frozen=True, slots=True)
class Turn:
    """What to do next: as *role* read *url*, "" where nobody leads. *term* is a leader's fence."""

    role: Role
    url: str
    term: int = 0


@dataclass(slots=True)
class Elector:
    """The part of one feed in its cluster, for as long as one run of its relay lasts."""

    feed: str
    source: Source
    coordinator: Coordinator | None
    clock: Clock
    count: Count
    _last: Turn | None = None
    _looked_ms: int = 0
    _announced_ms: int = 0
    _rests_until_ms: int = 0

    def turn(self, relay: Relay) -> Turn:
        """
        Whom to read now. Asks the coordinator at most every `limits.SEAT_RENEW_MS`.

        Where that is lost, everything stays as it was.
        """
        if self.source.role is not Role.ELECTED:
            return configured(self.source)
        now = self.clock()
        if self._last is None or now - self._looked_ms >= limits.SEAT_RENEW_MS:
            before = self._last or prior(self.source, relay)
            self._last, self._looked_ms = self._next_turn(relay, before, now), now
        return self._last

    def leave(self) -> None:
        """Give up the seat, so that another member need not wait for it to run out."""
        if self.source.role is not Role.ELECTED or self.coordinator is None:
            return
        try:
            for seat in self._seats(self.coordinator):
                if seat.address == self.source.address:
                    self.coordinator.take(seat, _given_up(seat))
        except Unavailable:
            self.count("CoordinatorLost", 1)

    def _next_turn(self, relay: Relay, before: Turn, now: int) -> Turn:
        if self.coordinator is None:
            return before
        try:
            turn = self._elected(self.coordinator, relay, now)
            if turn.role is not before.role or now - self._announced_ms >= _ANNOUNCE_MS:
                self._announce(self.coordinator, relay, turn, now)
        except Unavailable:
            self.count("CoordinatorLost", 1)
            return before
        return turn

    def _elected(self, coordinator: Coordinator, relay: Relay, now: int) -> Turn:
        seats, address = self._seats(coordinator), self.source.address
        mine = held_by(seats, address, now)
        if mine is not None and self._hopeless(coordinator, relay, seats, now):
            coordinator.take(mine, _given_up(mine))
            self._rests_until_ms = now + limits.SEAT_REST_MS
        elif mine is not None:
            renewed = replace(mine, until_ms=now + limits.SEAT_MS)
            if coordinator.take(mine, renewed):
                return Turn(Role.LEADER, self.source.url, mine.term)
        elif now >= self._rests_until_ms and (free := free_lease(seats, now)):
            taken = LeaderLease(
                free.cluster, free.number, address, free.term + 1, now + limits.SEAT_MS
            )
            if coordinator.take(free, taken):
                return Turn(Role.LEADER, self.source.url, taken.term)
        return Turn(Role.FOLLOWER, leader_of(seats, address, now))

    def _hopeless(
        self, coordinator: Coordinator, relay: Relay, seats: Sequence[LeaderLease], now: int
    ) -> bool:
        """Whether we cannot read the master, and somebody else is there to try."""
        if relay.role is not Role.LEADER or relay.failures < limits.SEAT_FAILURES:
            return False
        leaders = {seat.address for seat in seats if seat.held(now)}
        members = coordinator.members(self.source.cluster)
        return any(_is_there(each, now) and each.address not in leaders for each in members)

    def _seats(self, coordinator: Coordinator) -> list[LeaderLease]:
        """As many as there are leaders, those that nobody ever took too."""
        cluster = self.source.cluster
        seats = {seat.number: seat for seat in coordinator.seats(cluster)}
        numbers = range(self.source.leaders)
        return [seats.get(number, LeaderLease(cluster, number)) for number in numbers]

    def _announce(self, coordinator: Coordinator, relay: Relay, turn: Turn, now: int) -> None:
        source = self.source
        coordinator.announce(
            Member(source.cluster, source.address, self.feed, turn.role, relay.checkpoint, now)
        )
        self._announced_ms = now


def configured(source: Source) -> Turn:
    """The role that needs no coordinator."""
    if source.role is Role.FOLLOWER:
        return Turn(Role.FOLLOWER, source.leader)
    return Turn(Role.LEADER, source.url)


def prior(source: Source, relay: Relay) -> Turn:
    """What the feed did before this run; at its very first start it leads, as if it were alone."""
    if relay.role is Role.FOLLOWER and relay.upstream:
        return Turn(Role.FOLLOWER, relay.upstream)
    return Turn(Role.LEADER, source.url, relay.term)


def held_by(seats: Iterable[LeaderLease], address: str, now_ms: int) -> LeaderLease | None:
    return next((seat for seat in seats if seat.held(now_ms) and seat.address == address), None)


def free_lease(seats: Iterable[LeaderLease], now_ms: int) -> LeaderLease | None:
    return next((seat for seat in seats if not seat.held(now_ms)), None)


def leader_of(seats: Iterable[LeaderLease], address: str, now_ms: int) -> str:
    """Whom the follower at *address* reads, so that leaders have about as many followers each."""
    leaders = [seat.address for seat in seats if seat.held(now_ms) and seat.address != address]
    return leaders[hash_of(address) % len(leaders)] if leaders else ""


def _given_up(seat: LeaderLease) -> LeaderLease:
    return replace(seat, address="", until_ms=0)


def _is_there(member: Member, now_ms: int) -> bool:
    return now_ms - member.heard_ms <= limits.MEMBER_MS
