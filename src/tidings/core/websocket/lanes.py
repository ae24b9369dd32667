"""
The lane of push that serves a connection, and the ports of its subscriptions.

A connection stores its lane, and only that lane sends to it. The lane is chosen by the id of the
connection and the number of lanes of the feed. When that number changes, each lane hands over the
connections that now belong to another lane (`push`). The hash moves few connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from tidings.core.followers.names import follower_of, one
from tidings.core.websocket.connections import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.effects import NewId
    from tidings.core.followers.leases import Waker
    from tidings.core.websocket.connections import Connection, Subscription


class Inbox(Protocol):
    """
    Changes of subscriptions on their way to a lane of push, the only one to apply them.

    *lane* here and below is the name `lanes.storage_key` gives: the first lane's is the feed's own.
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


def lane_for(connection_id: str, lanes: int) -> int:
    """
    The lane of *connection_id* among so many *lanes*.

    Jump consistent hash (Lamping and Veach, arXiv 1406.2294): from n to n + 1 lanes one connection
    of n + 1 moves, to the new lane.
    """
    key, lane, ahead = crc32(connection_id.encode()), 0, 0
    while ahead < lanes:
        lane = ahead
        key = (key * 2862933555777941757 + 1) % 2**64
        ahead = int((lane + 1) * 2**31 / ((key >> 33) + 1))
    return lane


def storage_key(feed: str, lane: int) -> str:
    """The name under which stores keep what a lane of *feed* owns; no feed is called so."""
    return f"{feed}+{lane}" if lane else feed


@dataclass(frozen=True, slots=True)
class Lanes:
    """
    *count* is how many lanes a feed has; it may be some seconds old. *recount* reads it once more.
    """

    inbox: Inbox
    waker: Waker
    new_id: NewId
    count: Callable[[str], int] = one
    recount: Callable[[str], int] = one

    def lane_for(self, feed: str, connection_id: str) -> int:
        return lane_for(connection_id, self.count(feed))

    def hand_over(self, connection: Connection) -> None:
        """Ask the lane of *connection* to make it live, once it is woken."""
        self._post(connection, joins=True)

    def take_back(self, connection: Connection) -> None:
        """Ask the lane of *connection* to let it go, once it is woken."""
        self._post(connection, joins=False)

    def wake(self, connection: Connection) -> None:
        """Wake the lane of *connection*."""
        self.waker.ring(connection.feed, follower_of(connection.lane))

    def _post(self, connection: Connection, *, joins: bool) -> None:
        since = connection.since if joins else 0
        change = Change(connection.id, joins, connection.filter, since, self.new_id())
        self.inbox.post(storage_key(connection.feed, connection.lane), change)
