"""What WebSocket clients say, checked into values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import FEEDS
from tidings.core import limits
from tidings.core.errors import (
    InvalidCursor,
    InvalidFeed,
    InvalidFilter,
    InvalidMessage,
    Rejected,
    TooLarge,
    UnknownFeed,
)
from tidings.core.model import cursors
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.websocket import receive
from tidings.core.websocket.receive import Message
from tidings.core.websocket.session import Act

PLACE = cursors.Place(7, 3, 9)


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
