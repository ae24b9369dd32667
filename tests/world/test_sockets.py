"""WebSockets: Python's `websockets` and Node's `undici`, directly and through nginx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import PATIENCE_S, until
from tests.world import installing
from tests.world.messages import Client
from tests.world.nginx import Nginx
from tidings.server.running import Server

pytestmark = pytest.mark.nginx
WAYS = ("direct", "sockets")
LARGE = "x" * 60_000  # of 64 KB that an operation may have
SILENCE_S = 3.0  # longer than nginx waits in the block `impatient`


def _url(server: Server, nginx: Nginx, way: str) -> str:
    base = server.url if way == "direct" else nginx.url(way)
    return base.replace("http", "ws", 1) + "ws"


@contextmanager
def _subscribed(url: str, feed: Feed, start: str, **options: Any) -> Iterator[ClientConnection]:
    with connect(url, max_size=None, open_timeout=PATIENCE_S, **options) as socket:
        wanted = {"action": "resume", "feed": feed.name, "cursor": start}
        socket.send(json.dumps(wanted))
        yield socket


def _ids(socket: ClientConnection, count: int) -> list[str]:
    """Receive until *count* operations have arrived, and return their ids."""
    found: list[str] = []
    while len(found) < count:
        message = json.loads(socket.recv(timeout=PATIENCE_S))
        assert "error" not in message, message
        events = message.get("events", [])
        found += [each["id"] for each in events if each["event"] != "live"]
    return found


@pytest.mark.parametrize("compression", ["deflate", None])
@pytest.mark.parametrize("way", WAYS)
def test_large_messages_arrive_in_order(
    server: Server, nginx: Nginx, feed: Feed, way: str, compression: str | None
) -> None:
    """With and without an offer to compress, from a cursor and then as they are posted."""
    (start,) = feed.post(op("x"))
    expected = feed.post(*[op(f"x{number}", data=LARGE) for number in range(12)])
    url = _url(server, nginx, way)
    with _subscribed(url, feed, start, compression=compression) as socket:
        assert _ids(socket, len(expected)) == expected
        later = feed.post(*[op(f"y{number}", data=LARGE) for number in range(12)])
        assert _ids(socket, len(later)) == later
        assert socket.ping().wait(PATIENCE_S)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_in_fragments_is_one(server: Server, nginx: Nginx, feed: Feed, way: str) -> None:
    """A subscription of nearly 32 KB in frames of a few bytes, with pings between them."""
    (start,) = feed.post(op("x"))
    ids = [f"{number:0200}" for number in range(90)] + ["y"]
    text = json.dumps({"action": "resume", "feed": feed.name, "cursor": start, "ids": ids})
    assert 16 * 1024 < len(text) < 32 * 1024
    with connect(_url(server, nginx, way), open_timeout=PATIENCE_S) as socket:
        socket.send(text[at : at + 1000] for at in range(0, len(text), 1000))
        expected = feed.post(op("z"), op("y"))
        assert _ids(socket, 1) == expected[1:]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_beyond_the_limit_is_refused(server: Server, nginx: Nginx, way: str) -> None:
    """With an error; one that is much larger ends the connection."""
    with connect(_url(server, nginx, way), open_timeout=PATIENCE_S) as socket:
        socket.send("x" * (33 * 1024))
        assert json.loads(socket.recv(timeout=PATIENCE_S))["error"]["code"] == "too_large"
        socket.send("x" * (1024 * 1024))
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv(timeout=PATIENCE_S)
    # The rest of the message is not read: a reset may arrive before the close frame.
    assert ended.value.rcvd is None or ended.value.rcvd.code == 1009


def test_pings_of_a_client_keep_an_impatient_proxy(
    server: Server, nginx: Nginx, feed: Feed
) -> None:
    """A client that pings each second outlives a proxy that waits two; without pings it is cut."""
    (start,) = feed.post(op("x"))
    url = _url(server, nginx, "impatient")
    with _subscribed(url, feed, start, ping_interval=0.5, ping_timeout=PATIENCE_S) as socket:
        with pytest.raises(TimeoutError):
            while True:  # `subscribed`, and then nothing
                socket.recv(timeout=SILENCE_S)
        expected = feed.post(op("y"))
        assert _ids(socket, 1) == expected
    with (
        _subscribed(url, feed, start, ping_interval=None) as socket,
        pytest.raises(ConnectionClosed),
    ):
        while True:
            socket.recv(timeout=PATIENCE_S)
    with _subscribed(url, feed, start) as socket:  # missed events arrive after a reconnect
        assert len(_ids(socket, 1)) == 1


@pytest.mark.npm
@pytest.mark.parametrize("way", WAYS)
def test_undici_receives_each_operation(server: Server, nginx: Nginx, feed: Feed, way: str) -> None:
    """Node's WebSocket, which offers to compress."""
    (start,) = feed.post(op("x"))
    script = str(installing.node_folder() / "socket.mjs")
    url = _url(server, nginx, way)
    with Client(["node", "--no-warnings", script, url, feed.name, start]) as client:
        expected = feed.post(*[op(f"y{number}", data=LARGE) for number in range(5)])
        until(lambda: [each["id"] for each in client.messages if "id" in each] == expected)
