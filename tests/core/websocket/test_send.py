"""Delivery: all messages in order, or the connection is cut."""

from __future__ import annotations

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Outcome

from tests.core.scene import Scene
from tests.fakes import MemorySockets


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
    """And are counted."""
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2", "3"])
    assert scene.sockets.sent["c"] == ["1", "2", "3"]
    assert scene.counted == {"FramesSent": 3}


def test_who_is_busy_is_tried_again() -> None:
    """With growing pauses; order is kept."""
    scene = Scene(sockets=Slow(limits.SEND_ATTEMPTS_MAX))
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2"])
    assert scene.sockets.sent["c"] == ["1", "2"]
    assert scene.waits == [50, 100, 200] * 2


def test_who_stays_busy_is_cut(scene: Scene) -> None:
    """Closed and forgotten, after the bounded attempts; nothing behind the message is sent."""
    scene.connect("c")
    scene.sockets.busy.add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.sockets.closed == ["c"]
    assert scene.connections.get("c") is None
    assert scene.waits == [50, 100, 200]
    assert scene.counted == {"ConnectionsClosed": 1}


def test_what_may_have_arrived_is_not_repeated(scene: Scene) -> None:
    """Its client is cut at once: the message may land behind whatever would follow it."""
    scene.connect("c")
    scene.sockets.unknown.add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.sockets.late == [("c", "1")]
    assert scene.sockets.closed == ["c"] and scene.waits == []
    assert scene.connections.get("c") is None
    assert scene.counted == {"SendsUnknown": 1, "ConnectionsClosed": 1}


def test_who_refuses_for_good_is_cut_and_counted(scene: Scene) -> None:
    """It is no error, so nobody else waits for it."""
    scene.connect("c")
    scene.sockets.refused.add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.sockets.closed == ["c"] and scene.waits == []
    assert scene.counted == {"SendsRefused": 1, "ConnectionsClosed": 1}


def test_who_cannot_be_closed_is_forgotten_all_the_same() -> None:
    """After bounded attempts: what is sent to it later could pass what it was sent before."""

    class Stuck(MemorySockets):
        def close(self, connection_id: str) -> None:
            raise Unavailable("no answer")

    scene = Scene(sockets=Stuck())
    scene.connect("c")
    scene.delivery.cut("c")

    assert scene.waits == [50, 100, 200, 400]
    assert scene.connections.get("c") is None


def test_who_is_gone_is_forgotten_and_nobody_else(scene: Scene) -> None:
    """Exactly that connection, without an attempt to close it."""
    for name in ("gone", "here"):
        scene.connect(name)
    scene.sockets.gone.add("gone")

    assert not scene.delivery.send("gone", ["1", "2"])

    assert scene.connections.get("gone") is None
    assert scene.connections.get("here") is not None
    assert scene.sockets.closed == [] and scene.waits == []
    assert scene.counted == {"ConnectionsGone": 1}


def test_cutting_closes_first() -> None:
    """Its client knows before we forget it: otherwise it would wait on a dead connection."""
    order: list[str] = []

    class Telling(MemorySockets):
        def close(self, connection_id: str) -> None:
            order.append("closed" if scene.connections.get("c") else "forgotten before")
            super().close(connection_id)

    scene = Scene(sockets=Telling())
    scene.connect("c")
    scene.delivery.cut("c")

    assert order == ["closed"]
    assert scene.connections.get("c") is None


def test_sending_nothing_is_success(scene: Scene) -> None:
    """Even to nobody."""
    assert scene.delivery.send("nobody", [])
