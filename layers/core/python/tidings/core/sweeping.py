"""
Sweeping: the schedule's safety net under everything that is woken by events.

Rings followers that have something to do, trims the log, and picks up connections that were
left half way when a function died.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import limits
from .admissions import endings_of
from .followers import ARCHIVE, FOLLOWERS, PUSH
from .inboxes import hand_over, take_back
from .invocation import in_turn
from .replaying import serves
from .session import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .connections import Connection
    from .consumer_holds import ConsumerWatch
    from .delivery import Delivery
    from .ports import (
        Bells,
        Checkpoints,
        Clock,
        Count,
        Inbox,
        LogStore,
        NewId,
        Profiles,
        Roster,
        Tallies,
    )
    from .relay_watch import RelayWatch
    from .retention import Trimmer

SOCKETS = "sockets"  # the place of those who are connected by WebSocket


@dataclass(slots=True)
class Failures:
    """What failed of many things that do not depend on each other: all are counted, some kept."""

    errors: list[Exception] = field(default_factory=list)
    count: int = 0

    @contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Go on behind an error of *what* is done in this context."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (raised with the others at the end)
            self.count += 1
            if len(self.errors) < limits.SWEEP_ERRORS_MAX:
                error.add_note(what)
                self.errors.append(error)


@dataclass(frozen=True, slots=True)
class Sweeper:
    log: LogStore
    checkpoints: Checkpoints
    trimmer: Trimmer
    roster: Roster
    inbox: Inbox
    delivery: Delivery
    bells: Bells
    clock: Clock
    new_id: NewId
    count: Count
    tallies: Tallies
    watch: ConsumerWatch | None = None
    archives: bool = False
    relays: RelayWatch | None = None
    profiles: Profiles | None = None

    def run(self, feeds: frozenset[str]) -> None:
        """
        One sweep over every feed and connection. What fails stops nothing else.

        Raises:
            ExceptionGroup: what failed, each with a note that names it.
        """
        failures = Failures()
        for feed in in_turn(feeds, self.clock() // limits.SWEEP_EVERY_MS):
            for name, step in self._steps():
                with failures.kept(f"{name} of the feed {feed}"):
                    step(feed)
        with failures.kept("connections"):
            self._connections(failures)
        if failures.count:
            self.count("SweepStepsFailed", failures.count)
            raise ExceptionGroup(f"{failures.count} steps of the sweep failed", failures.errors)

    def _steps(self) -> Iterator[tuple[str, Callable[[str], object]]]:
        if self.relays:
            yield "the relay", self.relays.run
        yield "the followers", self._ring_late
        yield "the retention", self.trimmer.run
        if self.watch:
            yield "the consumers", self.watch.run

    def _connections(self, failures: Failures) -> None:
        connections = self.roster.connections()
        for connection in connections:
            with failures.kept(f"the connection {connection.id}"):
                self._look_after(connection)
        self._tell(connections)

    def _ring_late(self, feed: str) -> None:
        """Those that lag, and those whose holder died: whoever comes next would have to wait."""
        head, now_ms = self.log.head(feed), self.clock()
        leases = {lease.name: lease for lease in self.checkpoints.standings(feed)}
        checkpoints = {name: lease.checkpoint for name, lease in leases.items()}
        for follower in FOLLOWERS:
            lag = head - checkpoints.get(follower, 0)
            self.count("FollowerLag", lag)
            if lag > 0 or (follower in leases and leases[follower].is_late(now_ms)):
                self.bells.ring(feed, follower)
        if self.archives:
            self._archive(feed, head, checkpoints.get(ARCHIVE, 0))

    def _archive(self, feed: str, head: int, checkpoint: int) -> None:
        """
        Nothing else rings this follower: each of its runs costs a write, and a minute is enough.

        So pages say little of its lag.
        """
        waiting = self.log.read(feed, checkpoint, 1) if head > checkpoint else []
        lag_ms = max(0, self.clock() - waiting[0].at_ms) if waiting else 0
        self.count("ArchiveLag", lag_ms // 1000)
        if waiting:
            self.bells.ring(feed, ARCHIVE)

    def _tell(self, connections: Sequence[Connection]) -> None:
        """Who is on a WebSocket, as `/status` tells it; they are listed here anyway."""
        until_ms = self.clock() + limits.SWEPT_PRESENCE_MS
        subscribed = Counter(connection.feed for connection in connections if connection.feed)
        for feed, clients in sorted(subscribed.items()):
            self.tallies.attend(feed, SOCKETS, clients, until_ms=until_ms)

    def _has_ended(self, connection: Connection, now: int) -> bool:
        if self.profiles is None or not connection.admission.may_end:
            return False
        endings = endings_of(self.profiles.profile(connection.feed))
        return connection.admission.has_ended(endings, now)

    def _look_after(self, connection: Connection) -> None:
        now = self.clock()
        if now - connection.opened_ms > limits.CONNECTION_MS_MAX:
            self.delivery.cut(connection.id)
        elif self._has_ended(connection, now):
            self.delivery.end(connection.id)  # it may have been idle: push has not met it
        elif serves(connection):
            if now >= connection.runner_expires_ms:
                self.bells.replay(connection.id)
        elif connection.state is State.JOINING:
            if now < connection.runner_expires_ms:
                return  # a listener that is being answered: no item may come before that
            hand_over(self.inbox, connection, self.new_id())
            self.bells.ring(connection.feed, PUSH)
        elif connection.state is State.LEAVING:
            take_back(self.inbox, connection, self.new_id())
            self.bells.ring(connection.feed, PUSH)
