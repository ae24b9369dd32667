"""The values around a WebSocket connection: the connection, its subscription, its changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.settings.revocations import FOR_GOOD, Admission
from tidings.core.triton.registration import Listener
from tidings.core.websocket.session import State


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
