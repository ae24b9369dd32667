"""The stores of `websocket`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.websocket.connections import Change, Connection, Outcome, Subscription
    from tidings.core.websocket.roster import Portion, Round


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


class Inbox(Protocol):
    """
    Changes of subscriptions on their way to a lane of push, the only one to apply them.

    *lane* here and below is the name `lanes.filed_under` gives: the first lane's is the feed's own.
    """

    def post(self, lane: str, change: Change) -> None:
        """
        Leave *change*; a later one of the same connection replaces it.

        Only one that `moves` replaces one that moves, and no other.
        """

    def list(self, lane: str) -> Sequence[Change]:
        """All changes for *lane*. Strongly consistent."""

    def done(self, lane: str, change: Change) -> None:
        """Remove *change* unless it was replaced since."""


class Sockets(Protocol):
    """The way to a connected client."""

    def send(self, connection_id: str, frame: str) -> Outcome:
        """
        Send one text message, at most `limits.FRAME_BYTES_MAX` or one operation.

        Whatever becomes of it is an outcome: one client's trouble is never an error to others.
        """

    def close(self, connection_id: str) -> None:
        """
        Cut the connection; nothing happens when it is gone, or was never there.

        Raises:
            Unavailable: nobody knows whether it was cut.
        """


class SubscriptionIndex(Protocol):
    """Live subscriptions as they are filed under each value they filter on. Strongly consistent."""

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        """The subscriptions filed under *key*."""

    def all(self, lane: str) -> Sequence[Subscription]:
        """Every subscription of *lane*, once each."""

    def few(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        """
        The same by one read; None if more than *at_most* are filed.

        A subscription counts once for each key that it is filed under.
        """


class SubscriptionStore(SubscriptionIndex, Protocol):
    """Where they are filed."""

    def add(self, lane: str, watch: Subscription) -> None:
        """File *watch* under each of its keys."""

    def remove(self, lane: str, watch: Subscription) -> None:
        """Take it out again; nothing happens when it is not there."""
