"""The follower `push` where many come or listen at once: each turn ends in time."""

from __future__ import annotations

import pytest
from tidings.core import limits
from tidings.core.model.filters import EVERYTHING
from tidings.core.websocket.session import State

from tests.core.scene import FEED, Scene, op
from tests.core.websocket.test_push import joining, live


def test_many_joins_are_taken_up_turn_by_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one run, and each hears what was posted meanwhile once."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 2)
    scene.post(op("a"))
    for at in range(5):
        scene.inbox.post(FEED, joining(scene, f"c{at}"))
    scene.push()

    assert scene.inbox.list(FEED) == []
    for at in range(5):
        assert scene.events(f"c{at}") == ["a"]
        assert scene.connection(f"c{at}").state is State.LIVE


def test_a_turn_takes_up_no_more_than_it_has_time_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that some are left."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 2)
    for at in range(3):
        scene.inbox.post(FEED, joining(scene, f"c{at}"))

    assert scene.pusher.prepare(FEED, 0)
    assert len(scene.inbox.list(FEED)) == 1
    assert not scene.pusher.prepare(FEED, 0)


def test_a_turn_sends_no_more_than_it_has_time_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer pages then, one at least; a run brings all of them, in order."""
    monkeypatch.setattr(limits, "DELIVERIES_MAX", 2)
    for name in ("c", "d"):
        live(scene, name, EVERYTHING)
    scene.post_each(*"abcd")
    pages = scene.reader.read(FEED, 0).pages

    assert scene.pusher.handle(FEED, pages) == 1
    scene.pusher.handle(FEED, pages[1:2])
    assert scene.events("c") == scene.events("d") == ["a", "b"]
    scene.push()
    assert scene.events("c")[2:] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("trouble", ["gone", "busy", "unknown", "refused"])
def test_one_clients_trouble_is_not_that_of_others(scene: Scene, trouble: str) -> None:
    """Its connection is cut, with its subscription; the others hear everything in order."""
    for name in ("a", "b", "c"):
        live(scene, name)
    getattr(scene.sockets, trouble).add("b")

    for name in ("1", "2"):
        scene.post(op(name))
        scene.push()

    assert scene.events("a") == scene.events("c") == ["1", "2"]
    assert scene.connections.get("b") is None
    assert [each.connection_id for each in scene.watches.all(FEED)] == ["a", "c"]
