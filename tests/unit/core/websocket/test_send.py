"""Delivery: all messages in order, or the connection is cut."""

from __future__ import annotations

import pytest

from tests.fakes import MemorySockets
from tests.unit.core.scene import Scene
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Outcome


class Slow(MemorySockets):
    """Takes a message only at the *nth* attempt."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.nth, self.attempts = nth, 0

    def send(self, connection_id: str, frame: str) -> Outcome:
        self.attempts += 1
        if self.attempts % self.nth:
            return Outcome.BUSY
        return super().send(connection_id, frame)


def test_messages_arrive_in_order(scene: Scene) -> None:
    """They are counted."""
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2", "3"])
    assert scene.sockets.sent["c"] == ["1", "2", "3"]
    assert scene.counted == {"FramesSent": 3}


def test_who_is_busy_is_tried_again() -> None:
    """The pauses grow; the order is kept."""
    scene = Scene(sockets=Slow(limits.SEND_ATTEMPTS_MAX))
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2"])
    assert scene.sockets.sent["c"] == ["1", "2"]
    assert scene.waits == [50, 100, 200] * 2


def test_who_stays_busy_is_cut(scene: Scene) -> None:
    """It is closed and removed after the limited attempts; no later message is sent."""
    scene.connect("c")
    scene.sockets.busy.add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.sockets.closed == ["c"] and scene.connections.get("c") is None
    assert (scene.waits, scene.counted) == ([50, 100, 200], {"ConnectionsClosed": 1})


@pytest.mark.parametrize(
    ("trouble", "counted"),
    [
        ("unknown", {"SendsUnknown": 1, "ConnectionsClosed": 1}),
        ("refused", {"SendsRefused": 1, "ConnectionsClosed": 1}),
        ("gone", {"ConnectionsGone": 1}),
    ],
)
def test_who_cannot_be_tried_again_is_forgotten(
    scene: Scene, trouble: str, counted: dict[str, int]
) -> None:
    """Only this client is removed, at once, and closed if it is connected: no later message may
    arrive.
    """
    for name in ("c", "other"):
        scene.connect(name)
    getattr(scene.sockets, trouble).add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.connections.get("c") is None and scene.connections.get("other")
    assert scene.sockets.closed == ([] if trouble == "gone" else ["c"])
    assert scene.sockets.late == ([("c", "1")] if trouble == "unknown" else [])
    assert (scene.waits, scene.counted) == ([], counted)


def test_who_cannot_be_closed_is_forgotten_all_the_same() -> None:
    """It is removed after limited attempts: later messages could overtake earlier ones."""

    class Stuck(MemorySockets):
        def close(self, connection_id: str) -> None:
            raise Unavailable("no answer")

    scene = Scene(sockets=Stuck())
    scene.connect("c")
    scene.delivery.cut("c")

    assert scene.waits == [50, 100, 200, 400]
    assert scene.connections.get("c") is None


def test_cutting_closes_first() -> None:
    """Its client knows before we forget it: otherwise it would wait on a dead connection."""
    order: list[str] = []

    class RecordingSockets(MemorySockets):
        def close(self, connection_id: str) -> None:
            order.append("closed" if scene.connections.get("c") else "forgotten before")
            super().close(connection_id)

    scene = Scene(sockets=RecordingSockets())
    scene.connect("c")
    scene.delivery.cut("c")

    assert order == ["closed"]
    assert scene.connections.get("c") is None


def test_sending_nothing_is_success(scene: Scene) -> None:
    """This holds for unknown connections too."""
    assert scene.delivery.send("nobody", [])
