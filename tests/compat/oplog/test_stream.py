"""Rows O26 to O37: how a stream starts, what its blocks are, and which ids there are."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from tests.compat.oplog.conftest import Heartbeats
from tests.compat.oplog.feed import Feed, ask, feed_of, op
from tests.compat.oplog.test_http import carries_oplogs_headers, refused
from tests.compat.oplog.wire import JSON, PATIENCE_S, STREAM, Connection, Listener
from tidings.client.cli.main import main
from tidings.client.cli.settings import NONE
from tidings.core import limits
from tidings.core.settings.profiles import OPLOG, Profile
from tidings.server.running import Server

FOREIGN = "545b55c7f095528dd0f3863c"  # an ObjectId of 2014
HEARTBEAT_S = 25.5  # oplog's promise
SOON_S = 15.0  # 0.5 s with oplog on an idle machine; a lost wake-up takes 20 s
PROFILES = {
    "refs": Profile(object_url="http://api/{{type}}/{{id}}?{{id}}"),
    "websocket": Profile(object_url="/{{type}}/{{id}}"),
    "oplog": Profile(compat=OPLOG),
}


@pytest.fixture(scope="module")
def owned(host: Server, spare: Iterator[str]) -> dict[str, Feed]:
    """Feeds by what their owner has set, once the server has noticed: its sweep may know them."""
    feeds = {}
    for name, profile in PROFILES.items():
        feeds[name] = feed = feed_of(host, next(spare))
        wanted = ["--object-url", profile.object_url, "--compat", profile.compat or NONE]
        command = ["feed", "set", *host.locator, "--feed", feed.name, *wanted]
        assert CliRunner().invoke(main, command).exit_code == 0
    time.sleep(limits.PROFILE_AGE_MS / 1000)
    return feeds


@pytest.mark.parametrize("accept", [None, JSON, "text/html, application/xml;q=0.9", "text/plain"])
def test_O26_what_does_not_accept_a_stream(shared: Feed, accept: str | None) -> None:
    """406, before the password is looked at."""
    headers = {"authorization": "Basic Og=="} | ({"accept": accept} if accept else {})

    assert refused(ask(shared.port, "GET", shared.path, headers), 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["text/event-stream, */*", "*/*", "text/event-stream;q=0.5"])
def test_O26_what_accepts_among_others(shared: Feed, accept: str) -> None:
    """An extension: oplog accepted its own type only, alone and to the letter."""
    listener = Listener(Connection(shared.port, "GET", shared.path, [("accept", accept)]))

    assert listener.answer.status == 200


def test_O27_the_head_of_a_stream(feed: Feed) -> None:
    """It comes at once, before anything happens."""
    with feed.listening() as listener:
        assert listener.raw == b""
        assert listener.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.answer.headers["transfer-encoding"] == "chunked"
        assert carries_oplogs_headers(listener.answer)


@pytest.mark.parametrize("sent", ["0", "1", "+5", "1795195114525", FOREIGN, FOREIGN.upper()])
def test_O28_the_id_is_echoed(shared: Feed, sent: str) -> None:
    """The id as it was sent, regardless of its target."""
    with shared.listening(sent) as listener:
        assert listener.answer.headers["last-event-id"] == sent


def test_O29_without_an_id_the_stream_starts_now(feed: Feed) -> None:
    """Only later operations, after `live` (P7.4); no reset. An empty id counts as missing."""
    feed.post(op("before"))
    with feed.listening() as one, feed.listening("") as other:
        feed.post(op("after"))

        assert str(one.next()) == str(other.next()) == "insert after"


@pytest.mark.parametrize("event", ["insert", "update", "delete"])
def test_O30_O31_the_bytes_of_a_block(feed: Feed, event: str) -> None:
    """Id, event, data, an empty line; the keys of data in oplog's order."""
    with feed.listening() as listener:
        fields = {"timestamp": "2026-11-20T17:19:10.940Z", "parents": ["user/U1", "user/U1"]}
        (event_id,) = feed.post(op("X1", event, **fields))
        listener.next()

    assert re.fullmatch("[0-9a-f]{24}", event_id)
    assert listener.raw.decode() == (
        f"id: {event_id}\nevent: {event}\n"
        'data: {"timestamp":"2026-11-20T17:19:10.94Z","parents":["user/U1","user/U1"],'
        '"type":"video","id":"X1"}\n\n'
    )


def test_O32_refs(owned: dict[str, Feed]) -> None:
    """Last in the data, on rows and operations; not escaped, replaced in one pass."""
    feed = owned["refs"]
    feed.post(op("a/b &{{type}}"))
    feed.settle()
    with feed.listening() as listener:
        feed.post(op("x1"))
        live = listener.next()
    row = next(block for block in feed.copied() if block.data.get("id", "").startswith("a"))

    assert row.text.endswith(',"ref":"http://api/video/a/b &{{type}}?a/b &{{type}}"}')
    assert live.text.endswith(',"id":"x1","ref":"http://api/video/x1?x1"}')


def test_O32_refs_on_a_websocket(host: Server, owned: dict[str, Feed]) -> None:
    """The same refs as on a stream: in the copy and in pushed events."""
    feed = owned["websocket"]
    feed.post(op("a"))
    with connect(host.ws_url) as client:
        client.send(json.dumps({"action": "subscribe", "feed": feed.name, "from": "0"}))
        refs: list[str] = []
        while "/video/b" not in refs:
            message = json.loads(client.recv(timeout=PATIENCE_S))
            refs += [each["data"]["ref"] for each in message.get("events", ()) if "data" in each]
            if message.get("reply") == "subscribed":
                feed.post(op("b"))

    assert set(refs) == {"/video/a", "/video/b"}


def test_O32_no_ref_without_an_object_url(shared: Feed) -> None:
    """Not even the one that was sent."""
    with shared.listening() as listener:
        shared.post(op("x1", ref="http://mine"))

        assert "ref" not in listener.next().data


def test_O33_an_event_arrives_soon(feed: Feed) -> None:
    """The best of five: the others measure the machine."""
    delays = []
    with feed.listening() as listener:
        for number in range(5):
            feed.post(op(f"x{number}"))
            acknowledged = time.monotonic()
            listener.next()
            delays.append(time.monotonic() - acknowledged)

    assert min(delays) < SOON_S


def test_O35_a_stream_is_nothing_but_whole_blocks(feed: Feed) -> None:
    """Whatever names hold: three lines a block, LF alone, nothing else."""
    names = ["a\r\nb", "\n\nid: 1\n\n", "data: x", "retry: 1", ":", "a\u2028b\u0085c", "ä"]
    with feed.listening() as listener:
        feed.post(*map(op, names))
        heard = [block.data["id"] for block in listener.take(len(names))]

    assert heard == names
    assert b"\r" not in listener.raw
    assert len(listener.raw.decode().splitlines()) == 4 * len(names)
    assert listener.raw.startswith(b"id: ")


@pytest.mark.parametrize(
    "sent",
    [
        "abcd",
        "12345678901234",
        "-1234567890123",
        "a" * 23,
        "a" * 25,
        "g" * 24,
        "1e3",
        "0x10",
        "1 2",
        "1.0",
        "+",
        "--1",
        "null",
        "0" * 23,
    ],
)
def test_O36_what_is_no_id(shared: Feed, sent: str) -> None:
    """400, with the rule."""
    answer = ask(shared.port, "GET", shared.path, {"accept": STREAM, "last-event-id": sent})

    assert refused(answer, 400, "invalid_cursor")


def test_O37_an_id_in_upper_case(feed: Feed) -> None:
    """Means the same."""
    ids = feed.post(op("a"), op("b"))
    assert any(letter in "abcdef" for letter in ids[0])
    with feed.listening(ids[0].upper()) as listener:
        assert str(listener.next()) == "insert b"


def test_O13_a_feed_that_answers_as_oplog(owned: dict[str, Feed]) -> None:
    """With `compat=oplog`: no body in any error, and 503 for an operation that is wrong."""
    feed = owned["oplog"]
    wrong = feed.send(b"{")
    stream = ask(feed.port, "GET", feed.path, {"accept": STREAM, "last-event-id": "abcd"})
    method = ask(feed.port, "PUT", feed.path)

    assert [(each.status, each.body) for each in (wrong, stream, method)] == [
        (503, b""),
        (400, b""),
        (405, b""),
    ]
    assert feed.send(b"{}", content_type="text/plain").status == 415
    assert all(carries_oplogs_headers(each) for each in (wrong, stream, method))


def test_O34_a_quiet_stream_is_spoken_to(heartbeats: Heartbeats) -> None:
    """A comment in time, and nothing else; the stream was opened with the first test."""
    deadline = heartbeats.moments[0] + 3 * HEARTBEAT_S
    while len(heartbeats.moments) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)

    assert len(heartbeats.moments) >= 2
    gaps = [
        later - earlier
        for earlier, later in zip(heartbeats.moments, heartbeats.moments[1:], strict=False)
    ]
    assert min(gaps) <= HEARTBEAT_S  # the others measure the machine
    assert set(heartbeats.raw.decode().splitlines()) == {":"}
