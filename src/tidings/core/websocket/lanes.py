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
    Changes of subscriptions for a lane of push, which alone applies them.

    *lane* here and below is the name that `lanes.storage_key` returns: for the first lane, the
    feed.
    """

    def post(self, lane: str, change: Change) -> None:
        """
        Store *change*; it replaces an earlier change of the same connection.

        A change that `moves` replaces only a change that moves, and is replaced only by one.
        """

    def list(self, lane: str) -> Sequence[Change]:
        """Return all changes for *lane*, strongly consistent."""

    def done(self, lane: str, change: Change) -> None:
        """Remove *change* unless it was replaced since."""


class SubscriptionIndex(Protocol):
    """Live subscriptions, stored under each key of their filter. Strongly consistent."""

    def find(self, lane: str, key: str) -> Sequence[Subscription]:
        """Return the subscriptions stored under *key*."""

    def all(self, lane: str) -> Sequence[Subscription]:
        """Return every subscription of *lane*, once each."""

    def few(self, lane: str, at_most: int) -> Sequence[Subscription] | None:
        """
        Return all subscriptions with one read, or None if more than *at_most* are stored.

        A subscription counts once for each key under which it is stored.
        """


class SubscriptionStore(SubscriptionIndex, Protocol):
    """The store of live subscriptions."""

    def add(self, lane: str, watch: Subscription) -> None:
        """Store *watch* under each of its keys."""

    def remove(self, lane: str, watch: Subscription) -> None:
        """Remove *watch* from each of its keys; do nothing if it is missing."""


def lane_for(connection_id: str, lanes: int) -> int:
    """
    Return the lane of *connection_id* for this number of *lanes*.

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
    """
    Return the name under which stores keep the data of a lane of *feed*; no feed has this name.
    """
    return f"{feed}+{lane}" if lane else feed


@dataclass(frozen=True, slots=True)
class Lanes:
    """
    The lanes of feeds.

    *count* returns how many lanes a feed has, possibly some seconds old. *recount* reads the number
    again.
    """

    inbox: Inbox
    waker: Waker
    new_id: NewId
    count: Callable[[str], int] = one
    recount: Callable[[str], int] = one

    def lane_for(self, feed: str, connection_id: str) -> int:
        return lane_for(connection_id, self.count(feed))

    def hand_over(self, connection: Connection) -> None:
        """Ask the lane of *connection* to make it live once the lane is woken."""
        self._post(connection, joins=True)

    def take_back(self, connection: Connection) -> None:
        """Ask the lane of *connection* to release it once the lane is woken."""
        self._post(connection, joins=False)

    def wake(self, connection: Connection) -> None:
        """Wake the lane of *connection*."""
        self.waker.ring(connection.feed, follower_of(connection.lane))

    def _post(self, connection: Connection, *, joins: bool) -> None:
        since = connection.since if joins else 0
        change = Change(connection.id, joins, connection.filter, since, self.new_id())
        self.inbox.post(storage_key(connection.feed, connection.lane), change)
