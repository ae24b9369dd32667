"""connect, receive, replay, follow-push and disconnect: the life of one WebSocket connection."""

from __future__ import annotations

import json

import pytest

from functions.connect.handler import handle as connect
from functions.disconnect.handler import handle as disconnect
from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from tests.functions.cloud import CONNECTION, Cloud, become, event, message
from tidings.aws.stage import stage
from tidings.core.websocket.session import State

OK = {"statusCode": 200}
FROM_THE_FIRST = {"action": "resume", "cursor": "0000000000000000007fffff"}


@pytest.fixture
def push(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The environment of follow-push."""
    become("push", monkeypatch)
    return cloud


def state() -> State | None:
    connection = stage().stores.connections.get(CONNECTION)
    return connection.state if connection else None


def test_connect_writes_the_connection_down(cloud: Cloud) -> None:
    """It is open without a subscription, and receives no message yet."""
    answer = connect(event("socket_connect"), None)

    assert answer == OK
    assert state() is State.OPEN
    assert cloud.around.asked == []


@pytest.mark.parametrize("where", ["query", "header"])
def test_a_version_with_too_many_digits_is_refused(cloud: Cloud, where: str) -> None:
    """A mistake of the client: no follower is woken, and nothing is written."""
    said = {
        "query": {"queryStringParameters": {"version": "9" * 5000}},
        "header": {"headers": {"Accept-Version": "~" + "9" * 5000}},
    }
    answer = connect({**event("socket_connect"), **said[where]}, None)
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["field"]) == (400, "version")
    assert len(answer["body"]) < 500
    assert stage().stores.connections.get(CONNECTION) is None


def test_disconnect_forgets_it_and_may_come_twice(cloud: Cloud) -> None:
    """API Gateway sends $disconnect at best once, at worst for a forgotten connection."""
    connect(event("socket_connect"), None)
    answers = [disconnect(event("socket_disconnect"), None) for _ in range(2)]

    assert answers == [OK, OK]
    assert state() is None


def test_subscribe_is_confirmed_and_wakes_the_push_follower(cloud: Cloud) -> None:
    """From now on: nothing to catch up with, so the push follower is to take it up."""
    connect(event("socket_connect"), None)
    answer = receive(event("socket_message"), None)

    assert answer == OK
    assert state() is State.JOINING
    ((to, frame),) = cloud.posted
    assert (to, frame["reply"], frame["feed"]) == (CONNECTION, "subscribed", "main")
    assert cloud.invoked == [("tidings-dev-follow-push", {"ring": "main"})]


def test_a_message_in_base64_is_read(cloud: Cloud) -> None:
    """API Gateway marks a binary message; ours hold text all the same."""
    connect(event("socket_connect"), None)
    ping = event("socket_message", body="eyJhY3Rpb24iOiJwaW5nIn0=", isBase64Encoded=True)
    receive(ping, None)

    assert cloud.posted == [(CONNECTION, {"reply": "pong", "state": "open"})]


def test_a_replay_sends_the_log_and_hands_over_to_the_push_follower(push: Cloud) -> None:
    """Caught up by the replay, accepted by the follower, then served by its stream events."""
    ingest(event("http_post"), None)
    connect(event("socket_connect"), None)
    receive(message(FROM_THE_FIRST), None)
    replay({"replay": CONNECTION}, None)
    joined = state()
    follow({"ring": "main"}, None)
    live = state()
    ingest(event("http_post_to_feed"), None)
    answer = follow(event("stream_insert"), None)

    assert (joined, live) == (State.JOINING, State.LIVE)
    assert answer == {"batchItemFailures": []}
    assert ("tidings-dev-follow-push", {"ring": "main"}) in push.invoked
    events = [each for _, frame in push.posted for each in frame.get("events", ())]
    assert [each["data"]["id"] for each in events] == ["x32", "1", "2"]
    assert [each["event"] for each in events] == ["insert", "insert", "delete"]
    assert push.posted[-1][1]["cursor"] >= events[-1]["id"]
