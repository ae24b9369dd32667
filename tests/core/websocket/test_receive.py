"""Receiving: what a client's message does to its session."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core.auth.passwords import hashed
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import START
from tidings.core.model.filters import Filter
from tidings.core.settings.feed import Profile
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.session import TRANSITIONS, Act, State

from tests.core.scene import FEED, NOW, Scene, op
from tests.fakes import MemoryConnections, MemorySockets

VIDEOS = Filter(types=frozenset({"video"}))
MESSAGES: dict[Act, dict[str, object]] = {
    Act.SUBSCRIBE: {"action": "subscribe"},
    Act.RESUME: {"action": "resume", "cursor": START.encode()},
    Act.UNSUBSCRIBE: {"action": "unsubscribe"},
    Act.PING: {"action": "ping"},
    Act.KEEP_ALIVE: {"action": "keepalive"},
}


def code(scene: Scene, name: str = "c") -> str:
    """The code of the last error the client was sent."""
    return str(scene.heard(name)[-1]["error"]["code"])


def in_state(scene: Scene, state: State, progress: str = "") -> None:
    feed = "" if state is State.OPEN else FEED
    scene.connections.open(Connection("c", NOW, state, feed, progress=progress))


def test_subscribe_from_now_on(scene: Scene) -> None:
    """Straight to the push follower; confirmed with the frontier, rung last."""
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
    """To the replay; confirmed with the client's own cursor, from which we vouch."""
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
    """What it does not list is out of turn: told to the client, and nothing changes."""
    in_state(scene, state)
    before = scene.connection("c")
    scene.say("c", **MESSAGES[act])

    if act in TRANSITIONS[state]:
        assert "error" not in "".join(scene.sockets.sent["c"])
        return
    assert code(scene) == "out_of_turn"
    assert scene.connection("c") == before
    assert scene.waker.woken == [] and scene.waker.replays == []


def test_ping_tells_the_state(scene: Scene) -> None:
    """And changes nothing."""
    in_state(scene, State.LIVE)
    before = scene.connection("c")
    scene.say("c", action="ping")

    assert scene.heard("c") == [{"reply": "pong", "state": "live"}]
    assert scene.connection("c") == before


@pytest.mark.parametrize("state", State)
def test_8_7_a_keep_alive_is_answered_with_silence(scene: Scene, state: State) -> None:
    """P8.7: and changes nothing, whatever the connection does."""
    in_state(scene, state)
    before = scene.connection("c")
    scene.say("c", action="keepalive")

    assert scene.heard("c") == []
    assert scene.connection("c") == before


def test_8_9_the_encoding_is_kept_with_the_connection(scene: Scene) -> None:
    """P8.9: until it subscribes anew."""
    scene.connect()
    scene.say("c", action="subscribe", encoding="gzip")

    assert scene.connection("c").encoding == "gzip"


def test_unsubscribe_when_nothing_is_subscribed(scene: Scene) -> None:
    """Confirmed at once."""
    scene.connect()
    scene.say("c", action="unsubscribe")

    assert scene.heard("c") == [{"reply": "unsubscribed"}]
    assert scene.connection("c").state is State.OPEN


def test_unsubscribe_while_catching_up(scene: Scene) -> None:
    """The replay lets go; until then nothing is confirmed."""
    in_state(scene, State.CATCHING_UP, progress="{}")
    scene.say("c", action="unsubscribe")

    assert scene.connection("c").state is State.LEAVING
    assert scene.connection("c").progress
    assert scene.heard("c") == []
    assert scene.waker.replays == ["c"] and scene.inbox.list(FEED) == []


@pytest.mark.parametrize("state", [State.JOINING, State.LIVE])
def test_unsubscribe_from_push(scene: Scene, state: State) -> None:
    """The push follower lets go; a join on its way is replaced."""
    scene.connections.open(Connection("c", NOW, state, FEED, VIDEOS, since=7))
    scene.say("c", action="unsubscribe")

    assert scene.connection("c").state is State.LEAVING
    (change,) = scene.inbox.list(FEED)
    assert (change.joins, change.filter, change.since) == (False, VIDEOS, 0)
    assert scene.waker.woken == [(FEED, "push")]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"action": "subscribe", "feed": "third"}, "unknown_feed"),
        ({"action": "subscribe", "feed": "No!"}, "invalid_feed"),
        ({"action": "subscribe", "types": ["\0"]}, "invalid_filter"),
        ({"action": "resume"}, "invalid_cursor"),
        ({"action": "jump"}, "invalid_message"),
    ],
)
def test_errors_go_to_the_client(scene: Scene, message: dict[str, object], expected: str) -> None:
    """The connection stays open and as it was."""
    scene.connect()
    before = scene.connection("c")
    scene.say("c", **message)

    assert code(scene) == expected
    assert scene.connection("c") == before and scene.sockets.closed == []
    assert scene.waker.woken == [] and scene.waker.replays == []


def test_a_connection_nobody_knows_is_closed(scene: Scene) -> None:
    """Forgotten: its client comes back and resumes."""
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
    """The message is judged again by what stands now; a client can repeat one that never fits."""
    moving = Moving(scene.inbox, scene.watches)
    moving.open(Connection("c", NOW, State.LIVE, FEED))
    moving.steps = steps
    receiver = replace(scene.receiver, connections=moving)

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
    """When the answer goes out, everything it relies on is written."""
    seen: list[tuple[State, int]] = []

    class Looking(MemorySockets):
        def send(self, connection_id: str, frame: str) -> Outcome:
            seen.append((scene.connection("c").state, len(scene.inbox.list(FEED))))
            return super().send(connection_id, frame)

    scene = Scene(sockets=Looking())
    scene.connect()
    scene.say("c", action="subscribe")

    assert seen == [(State.JOINING, 1)]


def test_a_guarded_feed_asks_who_subscribes_and_nobody_else(scene: Scene) -> None:
    """Each subscription anew; what a client ends or asks of its own needs no password."""
    stored = hashed("the read one", salt=b"s" * 16, now_ms=NOW)
    scene.profiles.save(FEED, Profile(read_passwords=(stored,)))
    scene.connect()
    for message in (MESSAGES[Act.SUBSCRIBE], MESSAGES[Act.RESUME]):
        scene.say("c", **message)
        assert code(scene) == "wrong_password"
    assert scene.connection("c").state is State.OPEN

    scene.say("c", action="subscribe", password="the read one")
    assert scene.heard("c")[-1]["reply"] == "subscribed"
    for act in ("ping", "unsubscribe"):
        scene.say("c", action=act)
    assert "error" not in scene.heard("c")[-1]
