"""
WebSocket connections: the connection, its subscription, its changes, and the sweep of all.

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
    """The WebSocket connections, each one item."""

    def open(self, connection: Connection) -> None:
        """Write a new connection."""

    def get(self, connection_id: str) -> Connection | None:
        """Strongly consistent."""

    def update(self, old: Connection, new: Connection) -> bool:
        """
        Replace *old* by *new* if `old.version` is still there; False when it is not.

        What is stored has `old.version + 1`, whatever *new* says.
        """

    def remove(self, connection_id: str) -> None:
        """Forget the connection and everything filed under it."""


class Roster(Protocol):
    """Every connection, for the sweep, and how far it is with them."""

    def portion(self, place: str, limit: int) -> Portion:
        """
        Connections of all feeds behind *place*, "" for the first, in an order of the store's own.

        At most *limit* items are read, connections or what is stored beside them: so a portion
        may name nobody, and others follow all the same. Going on until a portion has no place
        names everybody who is connected all the while, once. May be some seconds old.
        """

    def round(self) -> Round:
        """What was last kept; `Round()` before. May be some seconds old."""

    def keep(self, round_: Round) -> None:
        """Store how far the round is."""


class Outcome(Enum):
    """What became of one message to a client."""

    SENT = "sent"
    GONE = "gone"  # nobody is there any more
    BUSY = "busy"  # it did not arrive and may be repeated: throttled, or no connection was made
    THROTTLED = "throttled"  # as BUSY, for longer than a turn can wait: so are all others
    UNKNOWN = "unknown"  # no answer, or a fault on the other side: it may arrive late or never
    REFUSED = "refused"  # for good: repeating it would not help


@dataclass(frozen=True, slots=True)
class Connection:
    """
    One WebSocket connection.

    *progress* is where its catch-up stands (an encoded `catchup.Progress`), empty once it was
    handed over behind page *since*; so it also tells who serves it. *runner* and
    *runner_expires_ms* say which replay works on it. *lane* is the one of push that serves it, or
    is to take it up. *listener* is set for one that registers as Triton's listeners do. *admission*
    is with what it subscribed, *encoding* what its client reads beside plain messages. *version*
    guards every update. *traced*: its client asked for the traces of operations.
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
        """This connection with other *fields*, as the next version."""
        return replace(self, version=self.version + 1, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A live subscription: this connection wants what *filter* matches, after page *since*."""

    connection_id: str
    filter: Filter
    since: int
    admission: Admission = FOR_GOOD
    encoding: str = ""
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """
    A subscription to be made live after page *since* (`joins`), to be ended, or to be handed to
    the lane that it belongs to now (`moves`).

    *token* tells one change of a connection from the next.
    """

    connection_id: str
    joins: bool
    filter: Filter
    since: int
    token: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Portion:
    """Some *connections*; the next portion begins behind *place*, which is empty at the end."""

    connections: Sequence[Connection]
    place: str


@dataclass(frozen=True, slots=True)
class Round:
    """
    How far a round is: the sweeps before looked at everybody up to *place*.

    *place* is empty at the beginning; only the store knows what it says. *counted* are those with a
    subscription so far, by feed; *previous* are those of the round before, where it took some
    sweeps.
    """

    place: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)
    previous: Mapping[str, int] = field(default_factory=dict)

    def behind(self, portion: Portion) -> Round:
        """This round, once *portion* is done; at the end without a place."""
        subscribed = Counter(each.feed for each in portion.connections if each.feed)
        return replace(self, place=portion.place, counted=Counter(self.counted) + subscribed)

    def clients(self) -> Mapping[str, int]:
        """How many there are by feed: in the middle no fewer than the round before had."""
        return Counter(self.counted) | Counter(self.previous) if self.place else self.counted

    def next(self, standing: Round) -> Round:
        """What the next sweep begins with, if this one began with *standing*."""
        if self.place:
            return self
        return Round(previous=self.counted) if standing.place else Round()
