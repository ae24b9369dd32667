"""Event streams, read by libraries of other people through a real nginx."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tidings.server.running import Server

from tests.oplog.feed import Feed, op
from tests.world import streams
from tests.world.nginx import Nginx
from tests.world.streams import LIBRARIES, RESUMING, Reader

BLOCKS = ("plain", "tls", "http2", "gzip", "path")
HOSTILE = "<é&\u2028\u0085>\r\n\\"
pytestmark = [pytest.mark.nginx, pytest.mark.npm, pytest.mark.go, pytest.mark.curl]


def _addresses(server: Server, nginx: Nginx, feed: Feed) -> dict[str, str]:
    """Return where the stream of *feed* is, for each way to the server."""
    path = f"feeds/{feed.name}/ops"
    return {
        "direct": server.url + path,
        **{block: nginx.url(block) + path for block in BLOCKS},
    }


def _reading(stack: ExitStack, library: str, url: str, nginx: Nginx) -> Reader:
    return stack.enter_context(Reader(LIBRARIES[library](url), nginx.authority))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_operation_arrives_while_the_stream_is_open(
    server: Server, nginx: Nginx, feed: Feed, library: str
) -> None:
    """Through each way: what was there, in order, then each operation as it is posted."""
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
