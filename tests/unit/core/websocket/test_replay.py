"""Replaying: the events after a cursor, then the hand-over to the push follower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemorySockets
from tests.unit.core.scene import FEED, NOW, Scene, op, unavailable
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model import cursors
from tidings.core.model.cursors import START
from tidings.core.settings.profiles import Profile
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.replay import serves
from tidings.core.websocket.session import State


class Calling(MemorySockets):
    """Calls *then* after each message it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[str], object] = lambda connection_id: None

    def send(self, connection_id: str, frame: str) -> Outcome:
        outcome = super().send(connection_id, frame)
        self.then(connection_id)
        return outcome


@pytest.fixture
def sockets() -> Calling:
    return Calling()


@pytest.fixture
def scene(sockets: Calling) -> Scene:
    return Scene(sockets=sockets)


def resumed(scene: Scene, cursor: str = START.encode(), **filters: object) -> str:
    """Open a connection that catches up from *cursor*."""
    scene.connect("c")
    scene.say("c", action="resume", cursor=cursor, **filters)
    scene.sockets.sent["c"].clear()
    return "c"


def test_8_9_a_catch_up_is_packed(scene: Scene) -> None:
    """P8.9: it is packed for clients that ask for it."""
    scene.post(*(op(f"x{number}") for number in range(100)))
    for name, asked in (("plain", {}), ("packed", {"encoding": "gzip"})):
        scene.connect(name)
        scene.say(name, action="resume", cursor=START.encode(), **asked)
        scene.replayer.run(name)

    assert scene.heard("plain")[1:] == scene.heard("packed")[1:]
    ((_, plain), (_, packed)) = (scene.sockets.sent[name] for name in ("plain", "packed"))
    assert plain.startswith("{") and len(packed) * 4 < len(plain)


def test_to_the_frontier_and_over(scene: Scene) -> None:
    """The client gets everything after the cursor, then waits for the push follower."""
    scene.post_each("a", "b")
    resumed(scene)
    scene.replayer.run("c")

    assert scene.events("c") == ["a", "b"]
    connection = scene.connection("c")
    assert (connection.state, connection.since) == (State.JOINING, 2)
    assert (connection.progress, connection.runner) == ("", "")
    assert [change.joins for change in scene.inbox.list(FEED)] == [True]
    assert scene.waker.woken == [(FEED, "push")]


@given(
    st.lists(st.sampled_from(["post", "replay", "push", "subscribe"]), max_size=12),
    st.integers(0, 3),
)
def test_no_gap_and_no_reorder_at_the_hand_over(doings: list[str], before: int) -> None:
    """In any order of posts, replays and pushes each event arrives once, in order."""
    scene, posted = Scene(), 0
    for _ in range(before):
        scene.post(op(f"x{posted}"))
        posted += 1
    scene.connect("c")
    for doing in [*doings, "subscribe", "replay", "push", "push"]:
        if doing == "post":
            scene.post(op(f"x{posted}"))
            posted += 1
        elif doing == "subscribe" and scene.connection("c").state is State.OPEN:
            scene.say("c", action="resume", cursor=START.encode())
        elif doing == "replay":
            scene.replayer.run("c")
        elif doing == "push":
            scene.push()

    assert scene.events("c") == [f"x{number}" for number in range(posted)]
    assert scene.connection("c").state is State.LIVE


def test_each_message_says_from_where_to_resume(scene: Scene) -> None:
    """The rest follows the cursor of the last message that arrived, whichever it was."""
    for page in range(5):
        scene.post(*(op(f"x{page}.{number}", "insert") for number in range(500)))
    scene.project()
    resumed(scene, "0")
    scene.replayer.run("c")
    messages = scene.heard("c")
    assert sum("cursor" in message for message in messages) > 3

    for at, message in enumerate(messages):
        if "cursor" not in message:
            continue
        again = Scene(log=scene.log, state=scene.state, followers=scene.followers)
        resumed(again, message["cursor"])
        again.replayer.run("c")
        rest = {event["data"]["id"] for later in messages[at + 1 :] for event in data(later)}
        assert rest <= set(again.events("c"))


def data(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a message except `reset` and `live`."""
    return [event for event in message["events"] if "data" in event]


def test_filters_hold_and_the_cursor_moves(scene: Scene) -> None:
    """The cursor moves past operations that do not match, too."""
    scene.post(op("a"), op("u", type="user"))
    resumed(scene, types=["user"])
    scene.replayer.run("c")

    (message,) = scene.heard("c")
    assert [event["data"]["id"] for event in message["events"]] == ["u"]
    assert cursors.parse(message["cursor"]) == scene.log.read(FEED, 0)[0].end


def test_nothing_to_send_is_not_sent(scene: Scene) -> None:
    """The cursor was the frontier already."""
    page = scene.post(op("a"))
    resumed(scene, page.end.encode())
    scene.replayer.run("c")

    assert scene.heard("c") == []
    assert scene.connection("c").state is State.JOINING


def test_one_replay_at_a_time(scene: Scene) -> None:
    """A second replay does nothing; after a crash it takes over."""
    scene.post(op("a"))
    resumed(scene)
    old = scene.connection("c")
    signed = old.with_fields(
        runner="other", runner_expires_ms=scene.now_ms + limits.REPLAY_LEASE_MS
    )
    assert scene.connections.update(old, signed)

    scene.replayer.run("c")
    assert scene.heard("c") == []

    scene.now_ms += limits.REPLAY_LEASE_MS
    scene.replayer.run("c")
    assert scene.events("c") == ["a"]


def test_a_zombie_stops_at_its_first_save(scene: Scene, sockets: Calling) -> None:
    """Another replay has the lease: the old one saves nothing and hands nothing over."""
    scene.post(op("a"))
    resumed(scene)

    def robbed(connection_id: str) -> None:
        standing = scene.connection(connection_id)
        scene.connections.update(standing, standing.with_fields(runner="thief"))

    sockets.then = robbed
    scene.replayer.run("c")

    assert scene.connection("c").runner == "thief"
    assert scene.connection("c").state is State.CATCHING_UP
    assert scene.inbox.list(FEED) == []


def test_out_of_time_it_goes_on_in_the_next_run(scene: Scene, sockets: Calling) -> None:
    """The next one is woken at once and begins where this one stopped."""
    scene.post_each("a", "b")
    scene.project()
    resumed(scene, "0")

    def slow(connection_id: str) -> None:
        scene.now_ms += limits.REPLAY_RUN_MS

    sockets.then = slow
    for run in range(2, 10):
        scene.replayer.run("c")
        if scene.connection("c").state is State.JOINING:
            break
        assert scene.connection("c").runner == ""
        assert scene.waker.replays == ["c"] * run

    assert scene.events("c")[0] == "reset" and scene.events("c")[-1] == "live"
    assert sorted(scene.events("c")[1:-1]) == ["a", "b"]


class Full:
    """Implements `Room` for clients that have not read the last step."""

    def __init__(self) -> None:
        self.is_full, self.waiting = True, list[str]()

    def has_room(self, connection_id: str) -> bool:
        return not self.is_full

    def replay_with_room(self, connection_id: str) -> None:
        self.waiting.append(connection_id)


def test_without_room_it_ends_and_nothing_is_lost(scene: Scene) -> None:
    """It is released before it waits, so that the next run can begin at any moment."""
    scene.post_each("a", "b")
    resumed(scene)
    room = Full()
    replayer = replace(scene.replayer, room=room)
    replayer.run("c")
    assert (scene.events("c"), room.waiting) == ([], ["c"])
    assert (scene.connection("c").runner, scene.waker.replays) == ("", ["c"])

    room.is_full = False
    replayer.run("c")
    assert scene.events("c") == ["a", "b"]
    assert room.waiting == ["c"]


def test_a_client_that_leaves_is_let_go(scene: Scene, sockets: Calling) -> None:
    """At the next step, with its confirmation; nothing follows it."""
    scene.projected(op("a"))
    resumed(scene, "0")

    def leave(connection_id: str) -> None:
        if len(scene.sockets.sent[connection_id]) == 1:
            scene.say(connection_id, action="unsubscribe")

    sockets.then = leave
    scene.replayer.run("c")

    assert scene.heard("c")[-1] == {"reply": "unsubscribed"}
    assert scene.connection("c").state is State.OPEN
    assert scene.inbox.list(FEED) == []


def test_a_client_that_left_before_the_replay_came(scene: Scene) -> None:
    """Its subscription is ended all the same."""
    scene.post(op("a"))
    resumed(scene)
    scene.say("c", action="unsubscribe")
    scene.replayer.run("c")

    assert scene.heard("c") == [{"reply": "unsubscribed"}]
    assert scene.connection("c").state is State.OPEN


@pytest.mark.parametrize("trouble", ["gone", "busy"])
def test_a_client_that_cannot_be_reached(scene: Scene, trouble: str) -> None:
    """The connection is removed, and not handed over."""
    scene.post(op("a"))
    resumed(scene)
    getattr(scene.sockets, trouble).add("c")
    scene.replayer.run("c")

    assert scene.connections.get("c") is None
    assert scene.inbox.list(FEED) == []


def test_a_connection_of_nobody(scene: Scene) -> None:
    """A late wake-up finds nothing to do."""
    scene.replayer.run("lost")

    assert scene.waker.woken == [] and scene.waker.replays == []


@pytest.mark.parametrize(
    ("state", "progress", "ours"),
    [
        (State.OPEN, "", False),
        (State.CATCHING_UP, "{}", True),
        (State.JOINING, "", False),
        (State.LIVE, "", False),
        (State.LEAVING, "{}", True),
        (State.LEAVING, "", False),
    ],
)
def test_whom_it_serves(scene: Scene, state: State, progress: str, ours: bool) -> None:
    """It serves connections that catch up, or that leave during it, and touches no other."""
    connection = Connection("c", NOW, state, FEED, progress=progress)
    assert serves(connection) is ours
    if not ours:
        scene.connections.open(connection)
        scene.replayer.run("c")
        assert scene.connection("c") == connection


def test_O32_refs_in_a_replay(scene: Scene) -> None:
    """Rows and operations have refs; `reset` and `live` have no data at all."""
    scene.profiles.save(FEED, Profile(object_url="/{{type}}s/{{id}}"))
    scene.projected(op("a", "insert"))
    scene.post(op("b", "insert"))
    scene.resume("0")

    events = [event for message in scene.heard("c") for event in message.get("events", [])]
    refs = [event.get("data", {}).get("ref") for event in events]
    assert refs == [None, "/videos/a", "/videos/b", None]


def test_a_replay_that_fails_leaves_the_connection_to_the_next_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one resumes at once, without waiting for the lease of the first one to expire."""
    scene.post_each("a", "b")
    resumed(scene)
    with monkeypatch.context() as patched:
        patched.setattr(scene.log, "read", unavailable)
        with pytest.raises(Unavailable):
            scene.replayer.run("c")
    scene.replayer.run("c")
    assert scene.events("c") == ["a", "b"]
