"""What WebSocket clients say: checked into values, possible in a state, and its effect."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryConnections, MemorySockets
from tests.unit.core.scene import FEED, FEEDS, NOW, Scene, op
from tidings.core import limits
from tidings.core.errors import (
    InvalidCursor,
    InvalidFeed,
    InvalidFilter,
    InvalidMessage,
    OutOfTurn,
    Rejected,
    TooLarge,
    Unavailable,
    UnknownFeed,
)
from tidings.core.model import cursors
from tidings.core.model.cursors import START
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.websocket import receive
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.receive import Message
from tidings.core.websocket.session import TRANSITIONS, Act, Event, State, after

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


@pytest.mark.parametrize("act", MESSAGES)
@pytest.mark.parametrize("feed", ["", FEED])
def test_a_connection_that_never_subscribes_is_closed(scene: Scene, act: Act, feed: str) -> None:
    """At the first message after a minute that does not subscribe; an ended one stays open."""
    scene.connections.open(Connection("c", NOW, feed=feed))
    scene.now_ms += int(limits.SUBSCRIBE_S * 1000)
    scene.say("c", action="ping")
    scene.now_ms += 1
    scene.say("c", **MESSAGES[act])

    stays = feed != "" or act in (Act.SUBSCRIBE, Act.RESUME)
    assert (scene.connections.get("c") is not None) == stays
    assert ("c" in scene.sockets.closed) != stays


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


def parse(**message: object) -> Message:
    return receive.parse_message(json.dumps(message), FixedFeeds(FEEDS))


def test_subscribe_alone() -> None:
    """The default feed, everything, from now on."""
    assert parse(action="subscribe") == Message(
        Act.SUBSCRIBE, "main", EVERYTHING, "now", cursors.Now()
    )


def test_subscribe_in_full() -> None:
    """Each field means what the protocol says; others are ignored."""
    message = parse(
        action="subscribe",
        feed="other",
        types=["video", ""],
        parents=["user/u1"],
        **{"from": "0", "more": 1},
    )

    wanted = Filter(frozenset({"video"}), frozenset({"user/u1"}))
    assert message == Message(Act.SUBSCRIBE, "other", wanted, "0", cursors.Since(0))


def test_null_filters_are_none_and_empty_ones_match_nothing() -> None:
    """The other transports have the same rule."""
    assert parse(action="subscribe", types=None).filter == EVERYTHING
    assert parse(action="subscribe", types=[]).filter == Filter(types=frozenset())


@pytest.mark.parametrize("action", ["unsubscribe", "ping", "keepalive"])
def test_short_messages(action: str) -> None:
    """Their other fields are not looked at."""
    assert parse(action=action, feed=7, cursor=[]) == Message(Act(action))


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        ({}, InvalidMessage, "action: must be one of subscribe, resume, unsubscribe, ping"),
        ({"action": None}, InvalidMessage, "action: must be one of"),
        ({"action": "Ping"}, InvalidMessage, "action: must be one of"),
        ({"action": ["ping"]}, InvalidMessage, "action: must be one of"),
        ({"ACTION": "ping"}, InvalidMessage, "action: must be one of"),
        ({"action": "subscribe", "feed": 1}, InvalidMessage, "feed: must be a string"),
        ({"action": "subscribe", "feed": "No!"}, InvalidFeed, "feed: must be 1 to 63"),
        ({"action": "subscribe", "feed": "third"}, UnknownFeed, "feed: no such feed here"),
        ({"action": "subscribe", "types": "a,b"}, InvalidMessage, "types: must be an array"),
        ({"action": "subscribe", "types": [1]}, InvalidMessage, "types: must be an array"),
        ({"action": "subscribe", "parents": {}}, InvalidMessage, "parents: must be an array"),
        ({"action": "subscribe", "types": ["\0"]}, InvalidFilter, "types: must be at most"),
        ({"action": "subscribe", "types": ["\ud800"]}, InvalidFilter, "types: must be at most"),
        ({"action": "subscribe", "password": 1}, InvalidMessage, "password: must be a string"),
        ({"action": "subscribe", "encoding": 1}, InvalidMessage, "encoding: must be a string"),
        ({"action": "subscribe", "from": 0}, InvalidMessage, "from: must be a string"),
        ({"action": "subscribe", "from": "abcd"}, InvalidCursor, "cursor: must be 24 hex"),
        ({"action": "resume", "cursor": None}, InvalidMessage, "cursor: must be a string"),
        ({"action": "resume", "cursor": "0" * 14}, InvalidCursor, "cursor: must be 24 hex"),
    ],
)
def test_what_is_refused(message: dict[str, Any], error: type[Rejected], text: str) -> None:
    """The error names the field."""
    with pytest.raises(error) as refused:
        parse(**message)
    assert type(refused.value) is error
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    "text",
    ["", "ping", "null", "[]", '"ping"', "{", '{"action":NaN}', "[" * 30_000, "\ud800", '"\\"'],
)
def test_what_is_no_message(text: str) -> None:
    """The text is not JSON, or not an object."""
    with pytest.raises(InvalidMessage, match=r"^message: "):
        receive.parse_message(text, FixedFeeds(FEEDS))


def test_how_long_a_message_is() -> None:
    """The limit is exact to the byte."""
    text = json.dumps({"action": "ping"})
    room = limits.MESSAGE_BYTES_MAX - len(text)

    assert receive.parse_message(text + " " * room, FixedFeeds(FEEDS)).act is Act.PING
    with pytest.raises(TooLarge, match="message: holds at most 32768 bytes, got 32769"):
        receive.parse_message(text + " " * (room + 1), FixedFeeds(FEEDS))


VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(["subscribe", "resume", "main", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["action", "feed", "types", "parents", "from", "cursor"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.text() | VALUES.map(json.dumps))
def test_any_text_is_a_message_or_rejected(text: str) -> None:
    """Nothing but `Rejected` comes out, and its body can always be sent."""
    try:
        receive.parse_message(text, FixedFeeds(FEEDS))
    except Rejected as error:
        assert json.dumps(error.body()).encode()


def test_a_password_is_read_and_never_shown() -> None:
    """Neither the value's text nor an error about the message contains it."""
    message = parse(action="subscribe", password="a secret")
    assert message.password == "a secret"
    assert "a secret" not in repr(message)
    assert parse(action="subscribe").password is None
    for text in ('{"password":"a secret"', '["a secret"]', '{"password":["a secret"]}'):
        with pytest.raises(Rejected) as refused:
            receive.parse_message(text, FixedFeeds(FEEDS))
        assert "a secret" not in json.dumps(refused.value.body())


STEPS: list[Act | Event] = [*Act, *Event]


@pytest.mark.parametrize(("state", "what"), list(itertools.product(State, STEPS)))
def test_every_pair_is_a_transition_or_out_of_turn(state: State, what: Act | Event) -> None:
    """A refusal lists the possible messages in the client's words."""
    if what in TRANSITIONS[state]:
        assert after(state, what) is TRANSITIONS[state][what]
        return
    with pytest.raises(OutOfTurn) as refused:
        after(state, what)
    possible = ", ".join(sorted(act.value for act in Act if act in TRANSITIONS[state]))
    assert refused.value.rule == f"not possible while {state.value}; possible: {possible}"
    assert refused.value.value == what.value


def test_the_whole_table() -> None:
    """The table is that of the protocol."""
    drawn: dict[tuple[State, Act | Event], State] = {
        (State.OPEN, Act.SUBSCRIBE): State.CATCHING_UP,
        (State.OPEN, Act.RESUME): State.CATCHING_UP,
        (State.OPEN, Act.UNSUBSCRIBE): State.OPEN,
        (State.CATCHING_UP, Act.UNSUBSCRIBE): State.LEAVING,
        (State.CATCHING_UP, Event.REACHED_FRONTIER): State.JOINING,
        (State.JOINING, Act.UNSUBSCRIBE): State.LEAVING,
        (State.JOINING, Event.JOINED): State.LIVE,
        (State.LIVE, Act.UNSUBSCRIBE): State.LEAVING,
        (State.LIVE, Event.MOVED): State.JOINING,
        (State.LEAVING, Event.RELEASED): State.OPEN,
        **{(state, act): state for state in State for act in (Act.PING, Act.KEEP_ALIVE)},
    }
    table = {
        (state, what): then for state, steps in TRANSITIONS.items() for what, then in steps.items()
    }
    assert table == drawn


def test_each_change_of_a_connection_is_the_next_version() -> None:
    """It leaves the rest as it was."""
    new = (
        Connection("c", 5, feed="main", since=3).with_fields(state=State.LIVE).with_fields(since=4)
    )

    assert new == Connection("c", 5, State.LIVE, feed="main", since=4, version=2)
