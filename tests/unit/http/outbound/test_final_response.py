"""Informational answers before the final one, with requests of urllib3."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidings.core.errors import Unavailable
from tidings.core.model.cursors import Place
from tidings.core.replication.source import ALL
from tidings.core.replication.wire import ReplicationBatch, UpstreamStatus, encode_batch
from tidings.http.outbound.credentials import ask_over_http
from tidings.http.outbound.upstream import HttpUpstream

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
ENDLESS = 100  # more than any client waits for


@contextmanager
def answering(body: str, hints: int) -> Iterator[str]:
    """Run a server that answers two requests on one connection, each after *hints* times 103."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(65536):
                connection.sendall(HINTS * hints + head + body.encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.close()


@pytest.mark.parametrize("hints", [0, 1, 5])
def test_an_upstream_may_send_hints_first(hints: int) -> None:
    """The connection is kept, and its next answer is read in the same way."""
    batch = ReplicationBatch(UpstreamStatus(1, 7, 6, "https://m/feeds/a", ()), ())
    with answering(encode_batch(batch), hints) as url:
        upstream = HttpUpstream(lambda: "")
        for _ in range(2):
            assert upstream.pages(url, Place(0, 0, 0), ALL, size=10, block_s=0) == batch


def test_an_issuer_may_send_hints_first() -> None:
    """The final answer has its keys."""
    with answering(json.dumps({"keys": []}), 2) as url:
        assert ask_over_http(url) == {"keys": []}


def test_hints_without_an_end_are_given_up() -> None:
    """Their number is limited, whatever time they take."""
    with answering("{}", ENDLESS) as url, pytest.raises(Unavailable):
        ask_over_http(url)
