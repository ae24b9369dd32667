"""
WebSocket connections: the connection, its subscription, its changes, and the sweep over all.

Each sweep reads a bounded part of all connections, so that its cost does not grow with their
number; a round over all connections takes more sweeps instead. If one sweep reads all of them,
nothing is stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.settings.revocations import FOR_GOOD, Admission
from tidings.core.triton.registration import Listener
from tidings.core.websocket.session import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ConnectionStore(Protocol):
    """The WebSocket connections, one item each."""

    def open(self, connection: Connection) -> None:
        """Write a new connection."""

    def get(self, connection_id: str) -> Connection | None:
        """Return the connection, strongly consistent, or None if it is missing."""

    def update(self, old: Connection, new: Connection) -> bool:
        """
        Replace *old* by *new* if the stored version is `old.version`, otherwise return False.

        The stored version becomes `old.version + 1`, regardless of the version of *new*.
        """

    def remove(self, connection_id: str) -> None:
        """Remove the connection and everything stored for it."""


class Roster(Protocol):
    """All connections, for the sweep, and the progress of its round."""

    def portion(self, place: str, limit: int) -> Portion:
        """
        Return connections of all feeds after *place* ("" at the start), in an order of the store.

        At most *limit* items are read, connections or other items stored with them. A portion may
        therefore be empty although more connections follow. Reading until a portion has an empty
        place returns each connection that stays open during the round exactly once. The data may be
        some seconds old.
        """

    def round(self) -> Round:
        """Return the last stored round, `Round()` before the first. It may be some seconds old."""

    def keep(self, round_: Round) -> None:
        """Store the progress of the round."""


class Outcome(Enum):
    """The outcome of one message to a client."""

    SENT = "sent"
    GONE = "gone"  # the client has disconnected
    BUSY = "busy"  # it did not arrive and may be repeated: throttled, or no connection was made
    THROTTLED = "throttled"  # as BUSY, for longer than a turn can wait, as for all other messages
    UNKNOWN = "unknown"  # no answer, or an error of the other side: it may arrive late or never
    REFUSED = "refused"  # permanent: repeating it would not help


@dataclass(frozen=True, slots=True)
class Connection:
    """
    One WebSocket connection.

    *progress* is the state of its catch-up (an encoded `catchup.Progress`). It is empty after the
    hand-over to push after page *since*, so it also shows which function serves the connection.
    *runner* is the id of the replay that works on it, until *runner_expires_ms*. *lane* is the lane
    of push that serves it, or that will accept it. *listener* is set for a connection that
    registers as Triton's listeners do. *admission* is the key it subscribed with, *encoding* the
    encoding its client can read in addition to plain messages. *version* guards every update.
    *traced*: its client requested the traces of operations.
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
    traced: bool = False

    def changed(self, **fields: object) -> Connection:
        """Return this connection with other *fields*, as the next version."""
        return replace(self, version=self.version + 1, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    A live subscription of a connection to the operations that *filter* matches, after page *since*.
    """

    connection_id: str
    filter: Filter
    since: int
    admission: Admission = FOR_GOOD
    encoding: str = ""
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """
    A change of a subscription that a lane of push must apply.

    If it *joins*, the subscription becomes live after page *since*. If it *moves*, the connection
    is handed over to the lane that it belongs to now. Otherwise the subscription ends. *token* is
    the unique id of the change.
    """

    connection_id: str
    joins: bool
    filter: Filter
    since: int
    token: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Portion:
    """Some *connections*; the next portion begins after *place*, which is empty at the end."""

    connections: Sequence[Connection]
    place: str


@dataclass(frozen=True, slots=True)
class Round:
    """
    The progress of a round: the previous sweeps checked all connections up to *place*.

    *place* is empty at the beginning; its format is private to the store. *counted* is the number
    of connections with a subscription so far, by feed. *previous* has the counts of the round
    before, if that took several sweeps.
    """

    place: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)
    previous: Mapping[str, int] = field(default_factory=dict)

    def behind(self, portion: Portion) -> Round:
        """Return this round after *portion*, with an empty place at the end."""
        subscribed = Counter(each.feed for each in portion.connections if each.feed)
        return replace(self, place=portion.place, counted=Counter(self.counted) + subscribed)

    def clients(self) -> Mapping[str, int]:
        """
        Return the number of clients by feed; during a round, at least that of the previous round.
        """
        return Counter(self.counted) | Counter(self.previous) if self.place else self.counted

    def next(self, standing: Round) -> Round:
        """Return the round to store for the next sweep, if this one began with *standing*."""
        if self.place:
            return self
        return Round(previous=self.counted) if standing.place else Round()
