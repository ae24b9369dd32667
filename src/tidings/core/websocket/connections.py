"""WebSocket connections, subscriptions, changes of subscriptions, and the stores of all three.

Each sweep reads a limited number of connections, so that the cost of a sweep does not grow with the
number of all connections. If there are many connections, a round over all of them takes several
sweeps, and the progress of the round is stored. If one sweep reads all connections, nothing is
stored.

The item of a connection names its lane of push, and only this lane sends to the connection. The
lane is chosen by the id of the connection and the number of lanes of the feed (`lane_for`). When
the number changes, each lane hands over the connections that now belong to another lane (`push`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from tidings.core.model.events import NO_OPTIONS, EventOptions
from tidings.core.model.feeds import follower_of, one_lane
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.settings.values import FOR_GOOD, Admission
from tidings.core.triton.registration import Listener
from tidings.core.websocket.session import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.core.effects import NewId
    from tidings.core.followers.leases import Waker


class ConnectionStore(Protocol):
    """A store of the WebSocket connections, one item each, the progress of a round of sweeps."""

    def open(self, connection: Connection) -> None:
        """Write a new connection."""

    def get(self, connection_id: str) -> Connection | None:
        """Return the connection, strongly consistent, or None if it is missing."""

    def update(self, old: Connection, new: Connection) -> bool:
        """Replace *old* by *new* if the stored version is `old.version`, otherwise return False.

        The stored version becomes `old.version + 1`, regardless of the version of *new*.
        """

    def remove(self, connection_id: str) -> None:
        """Remove the connection and everything stored for it."""

    def page(self, resume_at: str, limit: int) -> ConnectionPage:
        """Return connections of all feeds after *resume_at*, which is "" at the start.

        The store chooses the order. Read at most *limit* items, which are connections or other
        items stored with them. A page may therefore be empty although more connections follow. A
        caller that reads until a page has an empty place gets each connection that stays open
        during the round exactly once. The data may be some seconds old.
        """

    def round(self) -> Round:
        """Return the last stored round, or `Round()` if none is stored.

        The result may be some seconds old.
        """

    def keep(self, round_: Round) -> None:
        """Store *round_*."""


class Outcome(Enum):
    """The outcome of one message to a client."""

    SENT = "sent"
    GONE = "gone"  # the client has disconnected
    BUSY = "busy"  # the message was throttled or not sent; it did not arrive and may be repeated
    THROTTLED = "throttled"  # all messages were BUSY for longer than a turn can wait
    UNKNOWN = "unknown"  # there was no answer or a server error; the message may still arrive
    REFUSED = "refused"  # there was a permanent error, so that repeating the message cannot help


@dataclass(frozen=True, slots=True)
class Connection:
    """One WebSocket connection.

    *progress* is the state of the connection's catch-up (an encoded `catchup.Progress`). *progress*
    becomes empty when the connection is handed over to push, which continues after page *since*. So
    *progress* also shows whether a replay or push serves the connection. *runner* is the id of the
    replay that serves the connection until *runner_expires_ms*. *lane* is the lane of push that
    serves the connection, or that will accept it. *listener* is set if the client uses Triton's
    protocol. *admission* is the credential with which the client subscribed. *encoding* is the
    encoding that the client can read in addition to plain messages, or "". *options* are those
    that the client requested. A write is rejected if *version* has changed in the
    meantime.
    """

    id: str
    opened_ms: int
    state: State = State.OPEN
    feed: str = ""
    filter: Filter = EVERYTHING
    progress: str = ""
    since: int = 0
    runner: str = ""
    runner_expires_ms: int = 0
    listener: Listener | None = None
    admission: Admission = FOR_GOOD
    encoding: str = ""
    version: int = 0
    lane: int = 0
    options: EventOptions = NO_OPTIONS

    def with_fields(self, **fields: object) -> Connection:
        """Return this connection with other *fields*, as the next version."""
        return replace(self, version=self.version + 1, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A live subscription, by which push sends a connection the operations that *filter* matches.

    The first page for the connection is the page after *since*.
    """

    connection_id: str
    filter: Filter
    since: int
    admission: Admission = FOR_GOOD
    encoding: str = ""
    options: EventOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a subscription that a lane of push must apply.

    If *joins* is True, the subscription becomes live after page *since*. If *moves* is True, the
    connection is handed over to the lane to which it belongs now. If both are False, the
    subscription ends. *token* is the unique id of the change.
    """

    connection_id: str
    joins: bool
    filter: Filter
    since: int
    token: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionPage:
    """Some *connections*. The next page begins after *resume_at*, which is empty at the end."""

    connections: Sequence[Connection]
    resume_at: str


@dataclass(frozen=True, slots=True)
class Round:
    """The progress of a round, in which successive sweeps check all connections.

    The connections up to *resume_at* were checked. *resume_at* is empty at the beginning of the
    round, and its format is private to the store. *counted* is the number of connections with a
    subscription that were found so far, by feed. *previous* has the counts of the previous round if
    that round took several sweeps.
    """

    resume_at: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)
    previous: Mapping[str, int] = field(default_factory=dict)

    def after(self, page: ConnectionPage) -> Round:
        """Return this round after *page* was checked; `place` is empty after the last page."""
        subscribed = Counter(each.feed for each in page.connections if each.feed)
        return replace(self, resume_at=page.resume_at, counted=Counter(self.counted) + subscribed)

    def clients(self) -> Mapping[str, int]:
        """Return the number of clients by feed; during a round, the previous one if higher."""
        return Counter(self.counted) | Counter(self.previous) if self.resume_at else self.counted

    def next(self, stored: Round) -> Round:
        """Return the round to store for the next sweep, after a sweep that began with *stored*."""
        if self.resume_at:
            return self
        return Round(previous=self.counted) if stored.resume_at else Round()


class Inbox(Protocol):
    """A store of the changes of subscriptions for each lane of push. Only the lane applies them.

    Here and in other stores, *lane* is the name that `storage_key` returns. For the first lane,
    this is the name of the feed.
    """

    def post(self, lane: str, change: Change) -> None:
        """Store *change* instead of an earlier change of the same connection.

        A change with `moves` and a change without `moves` do not replace each other.
        """

    def list(self, lane: str) -> Sequence[Change]:
        """Return all changes for *lane*, strongly consistent."""

    def done(self, lane: str, change: Change) -> None:
        """Remove *change* unless another change has replaced it."""


class SubscriptionStore(Protocol):
    """A store of live subscriptions, each stored under every key of its filter.

    All reads are strongly consistent.
    """

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        """Return the subscriptions stored under *key*."""

    def all(self, lane: str) -> Sequence[Subscription]:
        """Return each subscription of *lane* once."""

    def all_if_at_most(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        """Return all subscriptions with one read, or None if more than *at_most* are stored.

        A subscription counts once for each key under which it is stored.
        """

    def some(self, lane: str, at_most: int) -> Sequence[Subscription]:
        """Return some subscriptions with one read; all of them if *at_most* are stored.

        A subscription counts once for each key under which it is stored.
        """

    def add(self, lane: str, subscription: Subscription) -> None:
        """Store *subscription* under each of its keys."""

    def remove(self, lane: str, subscription: Subscription) -> None:
        """Remove *subscription* from each of its keys; do nothing if it is missing."""


def lane_for(connection_id: str, lanes: int) -> int:
    """Return the lane of *connection_id* for this number of *lanes*.

    The function is the jump consistent hash (Lamping and Veach, arXiv 1406.2294). When n lanes
    become n + 1, about one in n + 1 connections moves, always to the new lane.
    """
    key, lane, ahead = crc32(connection_id.encode()), 0, 0
    while ahead < lanes:
        lane = ahead
        key = (key * 2862933555777941757 + 1) % 2**64
        ahead = int((lane + 1) * 2**31 / ((key >> 33) + 1))
    return lane


def storage_key(feed: str, lane: int) -> str:
    """Return the name of a lane's data in stores, which is *feed* for the first lane."""
    return f"{feed}+{lane}" if lane else feed


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of feeds.

    *count* returns the number of lanes of a feed, which may be some seconds old. *recount* reads
    the number again.
    """

    inbox: Inbox
    waker: Waker
    new_id: NewId
    count: Callable[[str], int] = one_lane
    recount: Callable[[str], int] = one_lane

    def lane_for(self, feed: str, connection_id: str) -> int:
        return lane_for(connection_id, self.count(feed))

    def hand_over(self, connection: Connection) -> None:
        """Post a change by which the lane of *connection* makes it live once the lane is woken."""
        self._post(connection, joins=True)

    def take_back(self, connection: Connection) -> None:
        """Post a change by which the lane of *connection* ends its subscription once woken."""
        self._post(connection, joins=False)

    def wake(self, connection: Connection) -> None:
        """Wake the lane of *connection*."""
        self.waker.wake(connection.feed, follower_of(connection.lane))

    def _post(self, connection: Connection, *, joins: bool) -> None:
        since = connection.since if joins else 0
        change = Change(connection.id, joins, connection.filter, since, self.new_id())
        self.inbox.post(storage_key(connection.feed, connection.lane), change)
