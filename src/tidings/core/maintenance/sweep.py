"""Run the sweep, a periodic run that does the work for which a wake-up was lost.

The sweep wakes followers and other functions that have work, trims the log, and completes changes
of connections that a crashed function left unfinished. It visits only the feeds that are due
(`DueFeeds`): a feed without work is visited again when something changes, or at the time at which
the steps of the visit need it. Connections are checked in rounds (`ConnectionSweeper`). The
sweep counts the problems that it finds, and `core.attention` raises alerts by these counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import is_ahead
from tidings.core.errors import FeedDeleted
from tidings.core.followers.follower import ARCHIVE, STATE, effective_checkpoints
from tidings.core.followers.invocation import in_turn
from tidings.core.log.due import NEXT_SWEEP, Due, earliest
from tidings.core.maintenance.retention import Look
from tidings.core.model.feeds import lane_of, public_name, pushers
from tidings.core.settings.profiles import endings_at, must_disconnect
from tidings.core.websocket.connections import storage_key
from tidings.core.websocket.push import leaves_push
from tidings.core.websocket.replay import serves
from tidings.core.websocket.session import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidings.core.counters import Counters
    from tidings.core.effects import Runtime
    from tidings.core.followers.follower import BuiltInFollowers
    from tidings.core.followers.leases import FollowerStore, Lease, Waker
    from tidings.core.log.due import DueFeeds
    from tidings.core.log.reader import Reader
    from tidings.core.model.feeds import FeedNames
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.websocket.connections import Connection, Lanes, SubscriptionStore
    from tidings.core.websocket.send import Delivery


SOCKETS = "sockets"  # the place under which `Counters` store the number of WebSocket clients


@dataclass(frozen=True, slots=True)
class ConnectionSweeper:
    """The part of the sweep that checks connections, and disconnects the clients of a feed."""

    delivery: Delivery
    lanes: Lanes
    feed_names: FeedNames
    profiles: ProfileStore
    counters: Counters
    runtime: Runtime

    def run(self, failures: Failures, until_ms: int) -> None:
        """Continue the round: check the connections on some pages of the store, at least one page.

        The progress is stored after the work. The next sweep therefore repeats the work of a sweep
        that was killed.
        """
        connections = self.delivery.connections
        stored = round_ = connections.round()
        for _ in range(limits.SWEEP_PAGES_MAX):
            page = connections.page(round_.resume_at, limits.SWEEP_PAGE)
            self._look_after(page.connections, failures)
            round_ = round_.after(page)
            if not round_.resume_at or self.runtime.steady() >= until_ms:
                break
        if (kept := round_.next(stored)) != stored:
            connections.keep(kept)
        # `/status` reports these numbers of WebSocket clients.
        expires_ms = self.runtime.clock() + limits.SWEPT_PRESENCE_MS
        for feed, count in sorted(round_.clients().items()):
            self.counters.attend(feed, SOCKETS, count, until_ms=expires_ms)

    def disconnect(self, feed: str) -> None:
        """Disconnect the WebSockets of the deleted *feed*, by a search of all connections."""
        error, resume_at = FeedDeleted(public_name(feed)), ""
        while True:
            page = self.delivery.connections.page(resume_at, limits.SWEEP_PAGE)
            ended = [each.id for each in page.connections if each.feed == feed]
            self.runtime.spread(lambda each: self.delivery.end(each, error), ended)
            resume_at = page.resume_at
            if not resume_at:
                return

    def _look_after(self, connections: Sequence[Connection], failures: Failures) -> None:
        """Run the due actions of *connections* concurrently, because there may be many of them."""
        due: dict[str, Callable[[], None]] = {}
        for connection in connections:
            with failures.record(f"the connection {connection.id}"):
                if act := self._due(connection):
                    due[connection.id] = act

        def do(connection_id: str) -> None:
            with failures.record(f"the connection {connection_id}"):
                due[connection_id]()

        if due:
            self.runtime.spread(do, list(due))

    def _has_ended(self, connection: Connection, now: int) -> bool:
        admission = connection.admission
        if not admission.may_end:
            return False
        # The client is disconnected. When it connects again, it has to send a valid key.
        endings = endings_at(self.profiles, connection.feed)
        return must_disconnect(endings, admission, connection.opened_ms, now)

    def _due(self, connection: Connection) -> Callable[[], None] | None:
        """Return the action that is due for *connection*, or None, which is the usual case."""
        now = self.runtime.clock()
        age_ms = now - connection.opened_ms  # negative after the clock was set back
        if not -limits.CLOCK_SKEW_MS_MAX <= age_ms <= limits.CONNECTION_MS_MAX:
            return partial(self.delivery.cut, connection.id)
        if connection.feed and not self.feed_names.exists(connection.feed):
            error = FeedDeleted(public_name(connection.feed))
            return partial(self.delivery.end, connection.id, error)
        if self._has_ended(connection, now):
            return partial(self.delivery.end, connection.id)  # push does not check idle connections
        if leaves_push(connection):
            return partial(self._hand_over, connection)
        if is_ahead(connection.runner_expires_ms, now, limits.REPLAY_LEASE_MS):
            return None  # a replay is running, or an answer to a Triton listener is not sent yet
        if serves(connection):
            return partial(self.lanes.waker.replay, connection.id)
        return partial(self._hand_over, connection) if connection.state is State.JOINING else None

    def _hand_over(self, connection: Connection) -> None:
        """Ask the lane again to make *connection* live or to release it, and wake the lane.

        The function that changed the connection may have crashed before it woke the lane.
        """
        joins = connection.state is State.JOINING
        (self.lanes.hand_over if joins else self.lanes.take_back)(connection)
        self.lanes.wake(connection)


# A step of a visit. It gets the feed and what the visit has observed of the log, None if that
# failed. It returns the time at which the feed needs the step again, or None.
Step = Callable[[str, Look | None], int | None]


@dataclass(slots=True)
class Failures:
    """The errors of independent steps. All errors are counted, and the first ones are kept."""

    errors: list[Exception] = field(default_factory=list)
    count: int = 0
    _lock: Lock = field(default_factory=Lock)  # connections are handled concurrently

    @contextmanager
    def record(self, what: str) -> Iterator[None]:
        """Collect an error that is raised in this context, with *what* as its note; continue."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (raised with the others at the end)
            error.add_note(what)
            with self._lock:
                self.count += 1
                if len(self.errors) < limits.SWEEP_ERRORS_MAX:
                    self.errors.append(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerMonitor:
    """The monitor that wakes the followers of a feed that lag or seem to have crashed.

    A page is archived after *archive_wait_ms*, or as soon as there are enough pages for a part of
    the archive.
    """

    reader: Reader
    store: FollowerStore
    waker: Waker
    subscriptions: SubscriptionStore
    followers: BuiltInFollowers
    archive_wait_ms: int = 0

    def run(self, feed: str) -> tuple[Look, int | None]:
        """Wake each follower that lags or has a late lease.

        Return the head and the checkpoints, and the time of the next visit. A lease is late if its
        holder seems to have crashed. Until a page is appended, a follower with a late lease gets no
        other wake-up.
        """
        leases = {lease.name: lease for lease in self.store.leases(feed)}
        look = Look(
            self.reader.log.head(feed),
            {name: lease.checkpoint for name, lease in leases.items()},
            erases=any(lease.erases for lease in leases.values()),
        )
        lanes = self.followers.lanes(feed)
        positions = effective_checkpoints(look.handled, archives=False, lanes=lanes)
        for follower in (STATE, *pushers(lanes)):
            self._wake(feed, follower, leases.get(follower), look.head, positions[follower])
        # Wake each removed lane that still has subscriptions, so that the lane hands them over.
        for removed, lane in _removed(leases, lanes):
            if self.subscriptions.all_if_at_most(storage_key(feed, lane), 0) is None:
                self.waker.wake(feed, removed)
        if self.followers.archives:
            self._archive(feed, look)
        required = self.followers.checkpoints(feed, look.handled)
        rest = all(page >= look.head for page in required.values())
        rest = rest and not any(lease.owner for lease in leases.values())
        return look, None if rest and not _removed(leases, lanes) else NEXT_SWEEP

    def _wake(
        self, feed: str, follower: str, lease: Lease | None, head: int, checkpoint: int
    ) -> None:
        """Wake *follower* if it lags, or if its lease is late.

        If a page has waited for long and no process holds the lease, count a lost wake-up.
        """
        now_ms, lag = self.reader.clock(), head - checkpoint
        self.reader.count("FollowerLag", lag)
        if lag > 0:
            waited_ms = self._waited_ms(feed, checkpoint)
            self.reader.count("FollowerAge", waited_ms // 1000)
            held = lease is not None and lease.is_held(now_ms)
            self.reader.count("WakeupsMissed", int(waited_ms >= limits.WAKE_LATE_MS and not held))
        if lag > 0 or (lease is not None and lease.is_late(now_ms)):
            self.waker.wake(feed, follower)

    def _waited_ms(self, feed: str, checkpoint: int) -> int:
        """Return how long ago the first page after *checkpoint* was written; 0 without one."""
        waiting = self.reader.log.read(feed, checkpoint, 1)
        return max(0, self.reader.clock() - waiting[0].at_ms) if waiting else 0

    def _archive(self, feed: str, look: Look) -> None:
        """Wake the archive follower if it is due. No other function wakes this follower.

        Each run of the follower costs two writes and a part of the archive. The follower is
        therefore seldom woken, and lags by some pages most of the time.
        """
        checkpoint = look.handled.get(ARCHIVE, 0)
        lag = look.head - checkpoint
        waited_ms = self._waited_ms(feed, checkpoint) if lag > 0 else 0
        self.reader.count("ArchiveLag", waited_ms // 1000)
        if lag > 0 and (waited_ms >= self.archive_wait_ms or lag >= limits.ARCHIVE_PAGES):
            self.waker.wake(feed, ARCHIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedVisit:
    """A visit of the sweep to one feed.

    *steps* run after the followers, each named for error messages. *about* is called with the feed
    before the visit, and by the sweep with "" after the last feed.
    """

    followers: FollowerMonitor
    steps: Mapping[str, Step]
    about: Callable[[str], None] = lambda feed: None

    def run(self, feed: str, failures: Failures) -> tuple[Look | None, list[int | None]]:
        """Run each step independently. Return what was observed, and the next time of each step."""
        self.about(feed)
        look, times = None, list[int | None]()
        with failures.record(f"the followers of the feed {feed}"):
            look, next_ms = self.followers.run(feed)
            times.append(next_ms)
        for name, step in self.steps.items():
            with failures.record(f"{name} of the feed {feed}"):
                times.append(step(feed, look))
        return look, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """The periodic sweep over the feeds that are due, and over all connections.

    *feed_names* are the feeds of this host; a deleted one is not visited. The *chained* feeds are
    always due, because a relay never rests.
    """

    due_feeds: DueFeeds
    feed_names: FeedNames
    runtime: Runtime
    visit: FeedVisit
    connections: ConnectionSweeper
    chained: Iterable[str] = ()
    # The marks and heads that this process saw at its last visits of the feeds that are still due.
    _seen: dict[str, tuple[Due, int]] = field(default_factory=dict)

    def run(self) -> None:
        """Visit the feeds that are due, and some of the connections.

        A failed step does not stop the others, and the feed stays due.

        Raises:
            ExceptionGroup: the errors, each with a note that names its step.
        """
        begun_ms, failures = self.runtime.steady(), Failures()
        until_ms = begun_ms + limits.SWEEP_LOOK_MS
        now_ms = self.runtime.clock()
        due = {feed: Due(feed) for feed in self.chained}
        with failures.record("the list of the due feeds"):
            due |= {each.feed: each for each in self.due_feeds.due(now_ms)}
        due = {feed: each for feed, each in due.items() if self._exists(each, failures)}
        for feed in in_turn(due, now_ms // limits.SWEEP_EVERY_MS):
            if self.runtime.steady() >= begun_ms + limits.SWEEP_VISITS_MS:
                break  # the next sweep begins with another feed
            self._visit(due[feed], failures)
        for feed in self._seen.keys() - due.keys():
            del self._seen[feed]
        self.visit.about("")
        with failures.record("connections"):
            self.connections.run(failures, until_ms)
        if failures.count:
            self.runtime.count("SweepStepsFailed", failures.count)
            raise ExceptionGroup(f"{failures.count} steps of the sweep failed", failures.errors)

    def _exists(self, due: Due, failures: Failures) -> bool:
        """Return True if the feed exists; settle a deleted one, to which a process still wrote."""
        with failures.record(f"the feed {due.feed}"):
            if self.feed_names.exists(due.feed):
                return True
            self.due_feeds.settle(due, None, head=0)
        return False

    def _visit(self, due: Due, failures: Failures) -> None:
        """Run the steps of one feed, and settle the feed if none of them has work now.

        If the feed was marked since the last visit, it stays due. Its log will probably grow again
        soon, and to settle and mark it each minute would cost writes. The services of this visit
        may also have used settings from before the change, which they cache for some seconds.
        """
        feed, failed = due.feed, failures.count
        look, times = self.visit.run(feed, failures)
        if look is None or failures.count > failed:
            return
        seen = due, look.head
        rests = due.at_ms != NEXT_SWEEP or self._seen.get(feed) == seen
        self._seen[feed] = seen
        next_ms = earliest(times)
        if not rests or (next_ms is not None and next_ms <= self.runtime.clock()):
            return
        with failures.record(f"the end of the visit of the feed {feed}"):
            self.due_feeds.settle(due, next_ms, head=look.head)
            del self._seen[feed]


def _removed(followers: Iterable[str], lanes: int) -> list[tuple[str, int]]:
    """Return the lanes among *followers* that a feed with *lanes* lanes no longer has."""
    numbered = ((each, lane_of(each) or 0) for each in followers)
    return [(follower, lane) for follower, lane in numbered if lane >= lanes]
