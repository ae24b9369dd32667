"""Receiving: the effect of a client's message on its session."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryConnections, MemorySockets
from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import START
from tidings.core.model.filters import Filter
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.session import TRANSITIONS, Act, State

VIDEOS = Filter(types=frozenset({"video"}))
MESSAGES: dict[Act, dict[str, object]] = {
    Act.SUBSCRIBE: {"action": "subscribe"},
    Act.RESUME: {"action": "resume", "cursor": START.encode()},
    Act.UNSUBSCRIBE: {"action": "unsubscribe"},
    Act.PING: {"action": "ping"},
    Act.KEEP_ALIVE: {"action": "keepalive"},
}


def code(scene: Scene, name: str = "c") -> str:
    """Return the code of the last error that the client was sent."""
    return str(scene.heard(name)[-1]["error"]["code"])


def in_state(scene: Scene, state: State, progress: str = "") -> None:
    feed = "" if state is State.OPEN else FEED
    scene.connections.open(Connection("c", NOW, state, feed, progress=progress))


def test_subscribe_from_now_on(scene: Scene) -> None:
    """Straight to the push follower; confirmed with the frontier, woken last."""
    page = scene.post(op("a"))
    scene.connect()
    scene.say("c", action="subscribe", types=["video"])

    connection = scene.connection("c")
    assert (connection.state, connection.since, connection.progress) == (State.JOINING, 1, "")
    assert connection.filter == VIDEOS
    assert scene.heard("c") == [
        {"reply": "subscribed", "feed": "main", "cursor": page.end.encode()}
    ]
    assert scene.waker.woken == [("main", "push")] and scene.waker.replays == []
    (change,) = scene.inbox.list(FEED)
    assert (change.joins, change.filter, change.since) == (True, VIDEOS, 1)


def test_resume_from_a_cursor(scene: Scene) -> None:
    """The replay starts; the confirmation has the client's own cursor."""
    page = scene.post(op("a"))
    scene.connect()
    cursor = page.id_prefix + "000000"
    scene.say("c", action="resume", cursor=cursor)

    connection = scene.connection("c")
    assert (connection.state, connection.feed) == (State.CATCHING_UP, "main")
    assert connection.progress
    assert scene.heard("c") == [{"reply": "subscribed", "feed": "main", "cursor": cursor}]
    assert scene.waker.replays == ["c"] and scene.waker.woken == []
    assert scene.inbox.list(FEED) == []


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("act", Act)
def test_the_session_table_is_kept(scene: Scene, state: State, act: Act) -> None:
    """Messages that the table does not list are answered as out of turn, and change nothing."""
    in_state(scene, state)
    before = scene.connection("c")
    scene.say("c", **MESSAGES[act])

    if act in TRANSITIONS[state]:
        assert "error" not in "".join(scene.sockets.sent["c"])
        return
    assert code(scene) == "out_of_turn"
    assert scene.connection("c") == before
    assert scene.waker.woken == [] and scene.waker.replays == []


def test_8_9_the_encoding_is_kept_with_the_connection(scene: Scene) -> None:
    """P8.9: it is kept until the client subscribes again."""
    scene.connect()
    scene.say("c", action="subscribe", encoding="gzip")

    assert scene.connection("c").encoding == "gzip"


def test_unsubscribe_while_catching_up(scene: Scene) -> None:
    """The replay ends the subscription; until then it is not confirmed."""
    in_state(scene, State.CATCHING_UP, progress="{}")
    scene.say("c", action="unsubscribe")

    assert scene.connection("c").state is State.LEAVING
    assert scene.connection("c").progress
    assert scene.heard("c") == []
    assert scene.waker.replays == ["c"] and scene.inbox.list(FEED) == []


@pytest.mark.parametrize("state", [State.JOINING, State.LIVE])
def test_unsubscribe_from_push(scene: Scene, state: State) -> None:
    """The push follower ends the subscription; a pending join is replaced."""
    scene.connections.open(Connection("c", NOW, state, FEED, VIDEOS, since=7))
    scene.say("c", action="unsubscribe")

    assert scene.connection("c").state is State.LEAVING
    (change,) = scene.inbox.list(FEED)
    assert (change.joins, change.filter, change.since) == (False, VIDEOS, 0)
    assert scene.waker.woken == [(FEED, "push")]


def test_a_connection_nobody_knows_is_closed(scene: Scene) -> None:
    """The feed no longer knows it: its client reconnects and resumes."""
    scene.say("lost", action="ping")

    assert scene.sockets.closed == ["lost"]


class Moving(MemoryConnections):
    """Something else changes the connection before each of the next *steps* updates."""

    steps = 0

    def update(self, old: Connection, new: Connection) -> bool:
        if self.steps:
            self.steps -= 1
            standing = self.get(old.id)
            assert standing is not None
            super().update(standing, replace(standing, since=standing.since + 1))
        return super().update(old, new)


@pytest.mark.parametrize("steps", [2, 100])
def test_a_change_under_our_hands_is_seen(scene: Scene, steps: int) -> None:
    """The message is judged again with the current state; if that keeps changing, the client has to
    repeat it.
    """
    moving = Moving(scene.inbox, scene.subscriptions)
    moving.open(Connection("c", NOW, State.LIVE, FEED))
    moving.steps = steps
    receiver = replace(scene.receiver, delivery=replace(scene.delivery, connections=moving))

    if steps == 2:
        receiver.receive("c", '{"action":"unsubscribe"}')
    else:
        with pytest.raises(Unavailable, match="connection c changed 5 times in a row"):
            receiver.receive("c", '{"action":"unsubscribe"}')
    standing = moving.get("c")
    assert standing is not None
    expected = (State.LEAVING, 2) if steps == 2 else (State.LIVE, 5)
    assert (standing.state, standing.since) == expected


def test_a_confirmed_subscription_is_readable() -> None:
    """All items are written before the answer is sent."""
    seen: list[tuple[State, int]] = []

    class Looking(MemorySockets):
        def send(self, connection_id: str, frame: str) -> Outcome:
            seen.append((scene.connection("c").state, len(scene.inbox.list(FEED))))
            return super().send(connection_id, frame)

    scene = Scene(sockets=Looking())
    scene.connect()
    scene.say("c", action="subscribe")

    assert seen == [(State.JOINING, 1)]
