"""Changes of subscriptions, as they are handed to the push follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.websocket.connections import Change

if TYPE_CHECKING:
    from tidings.core.websocket.connections import Connection
    from tidings.core.websocket.stores import Inbox


def hand_over(inbox: Inbox, connection: Connection, token: str) -> None:
    """Ask the push follower to make *connection* live."""
    change = Change(connection.id, True, connection.filter, connection.since, token)
    inbox.post(connection.feed, change)


def take_back(inbox: Inbox, connection: Connection, token: str) -> None:
    """Ask the push follower to let *connection* go."""
    change = Change(connection.id, False, connection.filter, 0, token)
    inbox.post(connection.feed, change)
