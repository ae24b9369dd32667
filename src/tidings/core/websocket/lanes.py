"""
Which lane of push serves a connection, and how a connection gets there.

A connection names its lane, and that lane alone sends to it. Whoever lets a connection join picks
the lane by its id and by how many lanes the feed has. Where their number changes, each lane hands
over the connections that belong to another one now (`push`); few do, because the hash moves no
connection between two lanes that stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from tidings.core.followers.lanes import follower_of, one
from tidings.core.websocket.connections import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.effects import NewId
    from tidings.core.followers.stores import Waker
    from tidings.core.websocket.connections import Connection
    from tidings.core.websocket.stores import Inbox


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


def filed_under(feed: str, lane: int) -> str:
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
        self.inbox.post(filed_under(connection.feed, connection.lane), change)
