"""Event streams, read by libraries of other people through a real nginx."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import PATIENCE_S, until
from tests.world import streams
from tests.world.nginx import Nginx
from tests.world.streams import LIBRARIES, RESUMING, Reader
from tidings.server.running import Server

BLOCKS = ("plain", "tls", "http2", "gzip", "path")
HOSTILE = "<é&\u2028\u0085>\r\n\\"
STREAM_S = 60.0  # after which nginx ends a silent connection
pytestmark = [pytest.mark.nginx, pytest.mark.npm, pytest.mark.go, pytest.mark.curl]


@dataclass(frozen=True, slots=True)
class Idle:
    """Clients of a feed where nothing happens, directly and through nginx, and when they began."""

    feed: Feed
    readers: Mapping[str, Reader]
    socket: ClientConnection
    nginx: Nginx
    began_s: float


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Idle]:
    """Nothing is set: nginx ends a connection that is silent for 60 seconds."""
    with Server() as server, ExitStack() as stack:
        nginx = stack.enter_context(Nginx(tmp_path_factory.mktemp("idle"), server.port))
        began_s = time.monotonic()
        readers = {
            f"{name} {query}": stack.enter_context(Reader(RESUMING[name](url + query)))
            for name in ("eventsource", "undici")
            for url, query in ((server.url, ""), (nginx.url("plain"), "?cursors=true"))
        }
        address = nginx.url("sockets").replace("http", "ws", 1) + "ws"
        socket = stack.enter_context(connect(address, ping_interval=None))
        socket.send(json.dumps({"action": "subscribe"}))
        yield Idle(Feed(server.port, "main"), readers, socket, nginx, began_s)


def test_an_idle_stream_is_opened(idle: Idle) -> None:
    """Begin to wait here; the last tests of this file see how it ended."""
    until(lambda: all(reader.states == ["open"] for reader in idle.readers.values()))


def _addresses(server: Server, nginx: Nginx, feed: Feed) -> dict[str, str]:
    """Return where the stream of *feed* is, for each way to the server."""
    path = f"feeds/{feed.name}/ops"
    return {"direct": server.url + path, **{block: nginx.url(block) + path for block in BLOCKS}}


def _reading(stack: ExitStack, library: str, url: str, nginx: Nginx) -> Reader:
    return stack.enter_context(Reader(LIBRARIES[library](url), nginx.authority))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_operation_arrives_while_the_stream_is_open(
    server: Server, nginx: Nginx, feed: Feed, library: str
) -> None:
    """Through each way: the existing operations, in order, then each one as it is posted."""
    (start,) = feed.post(op("x"))
    backlog = feed.post(*[op(f"{HOSTILE}{number}", data=HOSTILE) for number in range(50)])
    with ExitStack() as stack:
        readers = {
            way: _reading(stack, library, f"{url}?lastEventId={start}", nginx)
            for way, url in _addresses(server, nginx, feed).items()
        }
        expected = list(backlog)
        for event in ("update", "delete"):
            for reader in readers.values():
                reader.until(expected[-1])
            expected += feed.post(op("y", event))
        for way, reader in readers.items():
            reader.until(expected[-1])
            assert reader.ids == expected, way
            names = [event.name for event in reader.events]
            assert names == ["insert"] * 50 + ["update", "delete"], way
            assert reader.events[7].data["data"] == HOSTILE, way


@pytest.mark.parametrize("library", LIBRARIES)
def test_filters_with_hostile_values(
    server: Server, nginx: Nginx, feed: Feed, library: str
) -> None:
    """Only what matches arrives, in order, whatever the library does to an address."""
    query = "?types=video%2Caudio&parents=a%2Fb%20%C3%A9&ids=x*&lastEventId="
    (start,) = feed.post(op("x"))
    with ExitStack() as stack:
        readers = [
            _reading(stack, library, url + query + start, nginx)
            for url in _addresses(server, nginx, feed).values()
        ]
        posted = feed.post(
            op("x1", parents=["a/b é"]),
            op("y1", parents=["a/b é"]),
            op("x2", parents=["a/b"]),
            op("x3", parents=["c", "a/b é"], type="audio"),
            op("x4", parents=["a/b é"], type="image"),
        )
        for reader in readers:
            reader.until(posted[0], posted[3])


def test_nothing_is_lost_when_a_proxy_or_the_server_is_killed(
    server: Server, nginx: Nginx, feed: Feed
) -> None:
    """Each library that reconnects, and our own client, see every operation once and in order."""
    url = nginx.url("plain") + f"feeds/{feed.name}/ops"
    ours = ["--feed", feed.name, "--from"]
    (start,) = feed.post(op("x"))
    with ExitStack() as stack:
        resumed = f"{url}?lastEventId={start}"
        commands = {name: command(resumed) for name, command in RESUMING.items()}
        commands["tail-sse"] = streams.tail(nginx.url("plain"), *ours, start, "--transport", "sse")
        commands["tail-ws"] = streams.tail(nginx.url("sockets"), *ours, start)
        readers = {
            name: stack.enter_context(Reader(command, nginx.authority))
            for name, command in commands.items()
        }
        expected = feed.post(op("y1"), op("y2"))
        for reader in readers.values():
            reader.until(expected[-1])
        nginx.kill()
        expected += feed.post(op("y3"), op("y4"))
        nginx.start()
        expected += feed.post(op("y5"))
        for reader in readers.values():
            reader.until(expected[-1])
        server.kill()
        server.start()
        expected += feed.post(op("y6"), op("y7"))
        for name, reader in readers.items():
            reader.until(expected[-1])
            assert reader.ids == expected, name


def test_an_idle_connection_stays_open(idle: Idle) -> None:
    """A server ends no stream, and keeps a proxy from ending one.

    An EventSource that received no event has no cursor: to reconnect is to miss operations.
    """
    time.sleep(max(0.0, idle.began_s + STREAM_S + 5 - time.monotonic()))
    for name, reader in idle.readers.items():
        assert reader.states == ["open"], name


def test_an_idle_websocket_stays_open(idle: Idle) -> None:
    """For more than 60 seconds behind nginx, without a ping of the client."""
    time.sleep(max(0.0, idle.began_s + STREAM_S + 5 - time.monotonic()))
    assert idle.socket.ping().wait(PATIENCE_S)
    idle.socket.send(json.dumps({"action": "ping"}))
    message: dict[str, Any] = {}
    while message.get("reply") != "pong":
        message = json.loads(idle.socket.recv(timeout=PATIENCE_S))
    assert message["state"] == "live"


def test_a_cursor_is_kept_although_no_event_came(idle: Idle) -> None:
    """With `cursors=true` an EventSource resumes where its first connection began.

    The package `eventsource` ignores a block without data, unlike browsers and `undici`.
    """
    reader = idle.readers["undici ?cursors=true"]
    until(lambda: reader.states == ["open"])
    idle.nginx.kill()
    until(lambda: reader.states[-1] != "open")
    posted = idle.feed.post(op("x"), op("y"))
    idle.nginx.start()
    reader.until(*posted)
