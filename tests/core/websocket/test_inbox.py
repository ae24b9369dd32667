"""Changes of subscriptions, as they reach the push follower."""

from __future__ import annotations

from tidings.core.model.filters import Filter
from tidings.core.websocket.connections import Change, Connection
from tidings.core.websocket.inbox import hand_over, take_back

from tests.core.scene import FEED, NOW, Scene


def test_a_connection_is_handed_over_and_taken_back(scene: Scene) -> None:
    """With its filter; where it stands counts only for who joins. The later change stands."""
    wanted = Filter(types=frozenset({"video"}))
    connection = Connection("c", NOW, feed=FEED, filter=wanted, since=7)
    hand_over(scene.inbox, connection, "one")
    assert scene.inbox.list(FEED) == [Change("c", True, wanted, 7, "one")]
    take_back(scene.inbox, connection, "two")
    assert scene.inbox.list(FEED) == [Change("c", False, wanted, 0, "two")]
