"""The messages of a client on a WebSocket and on an event stream."""

from __future__ import annotations

import gzip
import json
import socket
import tracemalloc
from base64 import b64encode
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError
from websockets.http11 import Response

from tidings.client import sse, websocket
from tidings.client.address import Subscription
from tidings.client.errors import Lost, Refused
from tidings.client.events import Event, Moved
from tidings.client.websocket import (
    KEEP_ALIVE,
    PING,
    UNPACKED_BYTES_MAX,
    Heartbeat,
    Reader,
    Timing,
    failures,
    probe,
    subscribe_message,
)
from tidings.core import limits

TIMING = Timing(keep_alive_s=100, silent_s=1000, pong_within_s=10, subscribed_within_s=30)


def _reader(cursor: str = "now") -> Reader:
    return Reader(Heartbeat(TIMING, 0), cursor)


def _items(reader: Reader, **message: Any) -> list[Event | Moved]:
    return list(reader.items(json.dumps(message)))


def test_a_subscription_must_be_answered() -> None:
    """A connection without an answer in time is given up."""
    heartbeat = Heartbeat(TIMING, 0)

    assert heartbeat.due(29) is None
    assert heartbeat.wait_s(29) == pytest.approx(1)
    with pytest.raises(Lost):
        heartbeat.due(30)


def test_8_7_a_keep_alive_where_nobody_said_anything() -> None:
    """P8.7: it is sent nine minutes after the last message of either side, and is not answered."""
    heartbeat = Heartbeat(TIMING, 0)
    heartbeat.on_answer(None)

    assert heartbeat.due(99) is None
    assert heartbeat.due(100) == KEEP_ALIVE
    assert heartbeat.wait_s(100) == pytest.approx(100)
    assert heartbeat.due(199) is None
    heartbeat.on_message(199)
    assert heartbeat.due(298) is None
    assert heartbeat.due(299) == KEEP_ALIVE


@pytest.mark.parametrize(
    ("headers", "says"),
    [({"Via": "1.1 d111.cloudfront.net (CloudFront)"}, PING), ({"Server": "x"}, KEEP_ALIVE)],
)
def test_8_7_a_ping_where_a_proxy_is_between(headers: dict[str, str], says: str) -> None:
    """P8.7: a proxy may wait for something that the server says, and a keep-alive has no answer."""
    heartbeat = Heartbeat(TIMING, 0, Response(101, "Switching Protocols", Headers(headers)))
    heartbeat.on_answer(None)

    assert heartbeat.due(99) is None
    assert heartbeat.due(100) == says


def test_8_7_a_ping_where_nothing_was_heard() -> None:
    """P8.7: it is sent an hour after the last message of the server; a pong must come within 10
    seconds.
    """
    heartbeat = Heartbeat(TIMING, 0)
    heartbeat.on_answer(None)
    for now_s in range(100, 1000, 100):
        assert heartbeat.due(now_s) == KEEP_ALIVE

    assert heartbeat.due(1000) == PING
    assert heartbeat.due(1005) is None
    with pytest.raises(Lost):
        heartbeat.due(1010)
    heartbeat.on_message(1006)
    heartbeat.on_answer("live")
    assert heartbeat.due(1100) is None
    assert heartbeat.due(1106) == KEEP_ALIVE


def test_8_7_a_server_of_an_older_release_is_sent_pings() -> None:
    """P8.7: it answers that it does not know the keep-alive; the connection stays."""
    heartbeat = Heartbeat(TIMING, 0)
    heartbeat.on_answer(None)
    assert heartbeat.due(100) == KEEP_ALIVE
    error = {"code": "invalid_message", "field": "action", "value": "keepalive", "message": "no"}

    assert _items(Reader(heartbeat, "now"), error=error) == []
    assert heartbeat.due(200) == PING
    with pytest.raises(Lost):
        heartbeat.due(210)


def test_8_7_the_timing_is_that_of_the_protocol() -> None:
    """P8.7: keep-alives are more frequent than the gateway's ten minutes; the silence allowed is
    longer than the interval of the server's cursors.
    """
    assert Timing().keep_alive_s * 1000 < 600_000
    assert Timing().silent_s * 1000 > limits.IDLE_CURSOR_MS


def test_8_7_tcp_looks_whether_the_server_is_there() -> None:
    """P8.7: a keep-alive has no answer, so TCP has to detect a broken link."""
    with socket.socket() as link:
        probe(link)
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        found = [
            link.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        ]
    assert found[0] + found[1] * found[2] <= 120
    assert found[0] < 350  # a NAT gateway of AWS's forgets a silent connection then


def test_8_9_packed_messages_are_read() -> None:
    """P8.9: they have the same items as plain messages."""
    events = [{"id": str(at), "event": "insert", "data": {"a": "x" * 1000}} for at in range(100)]
    message = json.dumps({"events": events, "cursor": "2"})

    items = list(_reader().items(_packed(message.encode())))

    assert items == list(_reader().items(message))


def test_a_connection_that_ends_with_its_handshake_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client then reconnects: the library has closed the socket before the first use."""
    ended = SimpleNamespace(socket=socket.socket())
    ended.socket.close()
    monkeypatch.setattr(websocket, "connect", lambda *_, **__: nullcontext(ended))

    with pytest.raises(Lost):
        next(websocket.listen("ws://feed.example", Subscription("main"), ""))


@pytest.mark.parametrize("size", [UNPACKED_BYTES_MAX + 1, 100_000_000])
def test_8_9_a_bomb_is_no_message(size: int) -> None:
    """P8.9: what unpacks to more than a message holds ends the connection, and is not unpacked."""
    bomb = _packed(b'{"events":[]' + b" " * size + b"}")
    tracemalloc.start()
    with pytest.raises(Lost):
        list(_reader().items(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000 + 4 * len(bomb)


def _packed(plain: bytes) -> str:
    # Without the time: names of cases contain the result, and every worker must collect the same
    # ones.
    return b64encode(gzip.compress(plain, mtime=0)).decode()


@pytest.mark.parametrize("states", [["catching-up", "joining", "live", "joining", "live"]])
def test_a_pong_with_a_state_that_follows(states: list[str]) -> None:
    """P8.7: a live connection may join again, on another lane of push."""
    heartbeat = Heartbeat(TIMING, 0)

    for state in states:
        heartbeat.on_answer(state)


@pytest.mark.parametrize("states", [["open"], ["catching-up", "live", "catching-up"], ["None"]])
def test_a_pong_with_another_state(states: list[str]) -> None:
    """P8.7: a server that lost the subscription, or went back, is left."""
    heartbeat = Heartbeat(TIMING, 0)

    with pytest.raises(Lost):
        for state in states:
            heartbeat.on_answer(state)


def test_events_then_cursor() -> None:
    """P8.4: the cursor of a message covers its events, so it comes after them."""
    items = _items(_reader(), events=[{"id": "1", "event": "insert", "data": {"a": 1}}], cursor="2")

    assert items == [Event("1", "insert", {"a": 1}), Moved("2")]


def test_the_cursor_of_subscribed() -> None:
    """P8.5: the client resumes from it, unless a message with a cursor came before it (P8.4)."""
    reader = _reader()

    assert _items(reader, reply="subscribed", cursor="5") == [Moved("5")]

    reader = _reader()
    _items(reader, events=[], cursor="7")

    assert _items(reader, reply="subscribed", cursor="5") == []


@pytest.mark.parametrize("cursor", ["0", "650000000000000001000000", "000000000000000005800003"])
def test_a_cursor_of_ones_own_stays(cursor: str) -> None:
    """P2.3: a client that is cut off before the first event starts at its own cursor again."""
    assert _items(_reader(cursor), reply="subscribed", cursor="5") == []


def test_an_error_is_final() -> None:
    """P8.2: a refused request is not repeated; after a temporary error the client tries again."""
    with pytest.raises(Refused, match="no such feed") as caught:
        _items(_reader(), error={"code": "unknown_feed", "message": "no such feed"})

    assert caught.value.code == "unknown_feed"
    with pytest.raises(Lost):
        _items(_reader(), error={"code": "unavailable", "message": "later"})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "base64!",
        "bm90IGd6aXA=",
        _packed(b'{"events":[]}')[:-8],
        '{"events":[1]}',
        '{"events":[{"event":"x"}]}',
        '{"message":"Internal server error","requestId":"1"}',
    ],
)
def test_what_no_feed_says(text: str) -> None:
    """A message outside the protocol ends the connection, not the program."""
    with pytest.raises(Lost):
        list(_reader().items(text))


def test_subscriptions() -> None:
    """P8.1: an event id is sent as `resume`, any other cursor as `subscribe`; unset filters are
    left out.
    """
    at = "650000000000000001000000"

    assert json.loads(subscribe_message("", Subscription())) == {
        "action": "subscribe",
        "feed": "main",
        "from": "now",
        "encoding": "gzip",
    }
    wanted = Subscription("f", ("a",), ("b",), leave=True, password="geheim", erasures=True)
    assert json.loads(subscribe_message(at, wanted)) == {
        "action": "resume",
        "feed": "f",
        "cursor": at,
        "types": ["a"],
        "parents": ["b"],
        "encoding": "gzip",
        "leave": True,
        "erasures": True,
        "password": "geheim",
    }
    assert "geheim" not in repr(wanted)


@pytest.mark.parametrize("error", [ConnectionClosedError(None, None), EOFError(), OSError()])
def test_a_server_that_dies_amid_the_handshake_is_tried_again(error: Exception) -> None:
    """Every error of the library for this counts as a lost connection."""
    with pytest.raises(Lost), failures("ws://127.0.0.1:1/"):
        raise error


def _wire_event(event: str, event_id: str, name: str = "") -> dict[str, Any]:
    return {"id": event_id, "event": event, "data": {"id": name} if name else {}}


def _names(items: list[Event | Moved]) -> list[str]:
    return [
        item.cursor if isinstance(item, Moved) else str(item.data.get("id", item.name))
        for item in items
    ]


def _at(page: int, slot: int, seconds: int = 1) -> str:
    return f"{seconds:08x}{page:010x}{slot:06x}"


def test_what_comes_late_leads_nowhere() -> None:
    """P8.8: a message with an earlier cursor than the last one is ignored."""
    reader = _reader()
    first = {"events": [_wire_event("update", _at(7, 0), "a")], "cursor": _at(7, 0x7FFFFF)}
    second = {"events": [_wire_event("update", _at(8, 0), "b")], "cursor": _at(8, 0x7FFFFF)}

    assert _names(_items(reader, **second)) == ["b", _at(8, 0x7FFFFF)]
    assert _items(reader, **first) == []
    assert _names(_items(reader, **second)) == [_at(8, 0x7FFFFF)]


def test_a_copy_ascends_to_the_log_behind_it() -> None:
    """P8.8: `reset`, rows under one id, `live` at the page the copy began at, the log."""
    reader = _reader("0")
    bucket = [f"{0:08x}{9:010x}{0x800000 + number:06x}" for number in range(3)]
    reset = {"events": [_wire_event("reset", "1")], "cursor": bucket[0]}
    rows = {"events": [_wire_event("insert", bucket[0], "a")]}
    more = {"events": [_wire_event("insert", bucket[1], "b")], "cursor": bucket[2]}
    live = {"events": [_wire_event("live", _at(9, 0x7FFFFF))], "cursor": _at(9, 0x7FFFFF)}
    log = {"events": [_wire_event("update", _at(10, 0), "c")], "cursor": _at(10, 0x7FFFFF)}
    messages: list[dict[str, Any]] = [reset, rows, rows, more, live, log]

    heard = [_names(_items(reader, **message)) for message in messages]

    assert [names[0] for names in heard] == ["reset", "a", "a", "b", "live", "c"]
    for late in (reset, rows, more, live, log):
        assert [name for name in _names(_items(reader, **late)) if name != _at(10, 0x7FFFFF)] == []
    assert _names(_items(_reader("0"), **reset)) == ["reset", bucket[0]]

    together = {"events": [*reset["events"], *rows["events"]], "cursor": bucket[2]}
    assert _names(_items(_reader("0"), **together)) == ["reset", "a", bucket[2]]


def test_a_later_page_of_an_earlier_second_ascends() -> None:
    """P5.1: the seconds of an id are in no order."""
    reader = _reader()
    _items(reader, events=[], cursor=_at(7, 0x7FFFFF, seconds=99))

    assert _names(_items(reader, events=[], cursor=_at(8, 0x7FFFFF, seconds=98))) != []


STREAM = (
    ": hello\n\n"
    'id: 1\nevent: insert\ndata: {"type":"vidéo","id":"x😀"}\n\n'
    "id: 2\n\n"
    "event: reset\ndata: {}\n\n"
    'id:3\nevent:update\ndata:{\ndata: "a":1}\nretry: 5\nother: x\n\n'
    "id: 4\nevent: insert\ndata: {}\n"
)
EVENTS = [
    Event("1", "insert", {"type": "vidéo", "id": "x😀"}),
    Moved("2"),
    Event("2", "reset"),
    Event("3", "update", {"a": 1}),
]


def _parse(chunks: list[bytes]) -> list[Event | Moved]:
    parser = sse.Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_line_ending(ending: str) -> None:
    """LF, CRLF and CR end a line; an unfinished block is not an event."""
    assert _parse([STREAM.replace("\n", ending).encode()]) == EVENTS


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_byte_by_byte(ending: str) -> None:
    """The result does not depend on how the network splits the text, even within a character."""
    stream = STREAM.replace("\n", ending).encode()

    assert _parse([stream[at : at + 1] for at in range(len(stream))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode()))), st.sampled_from(["\n", "\r\n"]))
def test_cut_anywhere(cuts: list[int], ending: str) -> None:
    """Any chunks give the events of the whole."""
    stream = STREAM.replace("\n", ending).encode()
    edges = [0, *sorted(cuts), len(stream)]

    assert _parse([stream[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_byte_order_mark() -> None:
    """A byte order mark at the start is not part of the first field."""
    assert _parse([b"\xef\xbb\xbfid: 1\n\n"]) == [Moved("1")]


def test_a_line_without_end() -> None:
    """What never ends a line is cut off before it fills the memory."""
    with pytest.raises(Lost):
        _parse([b"data: " + b"x" * (sse.LINE_CHARS_MAX + 1)])
