"""What an upstream may answer, or not answer, and informational answers before the final one."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contract.answering import Reply
from tests.functions.upstream import Upstream
from tidings.core.errors import BrokenBatch, LogFellOff, OtherLog, Unavailable, UpstreamRefused
from tidings.core.model.cursors import Place
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page
from tidings.core.replication.source import ALL, Mod, Selection
from tidings.core.replication.wire import (
    ReplicationBatch,
    Rows,
    UpstreamStatus,
    encode_batch,
    encode_rows,
)
from tidings.core.state.rows import Row
from tidings.http.outbound import upstream as http_upstream
from tidings.http.outbound.credentials import ask_over_http
from tidings.http.outbound.upstream import HttpUpstream

STATUS = UpstreamStatus(floor=1, head=7, state=6, master="https://m/feeds/a", via=("x",))
PAGES = ReplicationBatch(STATUS, (Page(7, '{"event":"update","type":"a","id":"1"}', "", 1_000),))
ROWS = Rows(STATUS, (Row("a/1", 7, 0, 1_000, '{"id":"1"}'),), "a/1")
START = Place(0, 0, 0)
SECRET = "correct horse"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


def read(
    upstream: Upstream, asking: HttpUpstream | None = None, after: Place = START
) -> ReplicationBatch:
    asking = asking or HttpUpstream(lambda: "")
    return asking.pages(upstream.url, after, ALL, size=1000, block_s=0)


def refused(code: str, status: int, **more: object) -> Reply:
    body = {"error": {"code": code, "message": "no\nway", "rule": "no way", **more}}
    return Reply(json.dumps(body).encode(), status)


def test_pages_and_rows_come_as_they_were_told(upstream: Upstream) -> None:
    """All requests use one connection, and answers may be packed or not."""
    asking = HttpUpstream(lambda: "")
    upstream.reply = Reply(encode_batch(PAGES).encode())
    assert asking.pages(upstream.url, START, ALL, size=1000, block_s=3) == PAGES
    upstream.reply = Reply(
        gzip.compress(encode_rows(ROWS).encode()), headers={"Content-Encoding": "gzip"}
    )
    assert asking.rows(upstream.url, 3, "a/0", ALL) == ROWS

    assert upstream.asked == [
        "/feeds/main/pages?size=1000&block=3",
        "/feeds/main/rows?bucket=3&after=a%2F0",
    ]
    assert len(upstream.ports) == 1
    assert "authorization" not in upstream.headers


def test_D4_the_end_of_the_last_page_is_asked_from(upstream: Upstream) -> None:
    """The request has the selection to copy."""
    upstream.reply = Reply(encode_batch(PAGES).encode())
    chosen = Selection(Filter(frozenset({"b", "a"})), Mod(2, frozenset({1})))
    place = Place(3, 5, 1)
    HttpUpstream(lambda: "").pages(upstream.url, place, chosen, size=9, block_s=0)

    assert upstream.asked == [
        f"/feeds/main/pages?size=9&block=0&types=a%2Cb&share=mod%3A2%3A1&after={place.encode()}"
    ]


def test_the_password_is_sent_and_asked_for_again_when_it_was_refused(upstream: Upstream) -> None:
    """A new password is then used without a restart; no error contains it."""
    known = ["old", "old", "new"]
    asking = HttpUpstream(lambda: known.pop(0))
    upstream.reply = Reply(encode_batch(PAGES).encode())
    for _ in range(2):
        read(upstream, asking)
    assert known == ["old", "new"]
    upstream.reply = refused("wrong_password", 401)
    for _ in range(2):
        with pytest.raises(UpstreamRefused) as error:
            read(upstream, asking)
        assert "old" not in str(error.value)
    assert upstream.headers["authorization"].split()[1] == base64.b64encode(b":old").decode()
    with pytest.raises(UpstreamRefused):
        read(upstream, asking)
    assert upstream.headers["authorization"].split()[1] == base64.b64encode(b":new").decode()


def test_a_password_is_not_sent_in_the_clear() -> None:
    """An address on the same machine is the exception."""
    with pytest.raises(UpstreamRefused, match="only over https") as error:
        HttpUpstream(lambda: SECRET).rows("http://feed.example/feeds/a", 0, None, ALL)
    assert SECRET not in str(error.value)


def test_D16_a_log_that_does_not_reach_back_says_where_it_begins(upstream: Upstream) -> None:
    """It is a separate error with the floor."""
    upstream.reply = refused("log_fell_off", 410, floor=12)
    with pytest.raises(LogFellOff) as error:
        read(upstream, after=Place(3, 0, 1))
    assert error.value.floor == 12


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (refused("other_log", 409), OtherLog),
        (refused("wrong_password", 401), UpstreamRefused),
        (refused("unknown_feed", 404), UpstreamRefused),
        (refused("leave_not_kept", 400), UpstreamRefused),
        (Reply(b"<html>", 404), UpstreamRefused),
        (Reply(b"", 302, {"Location": "/elsewhere"}), UpstreamRefused),
        (Reply(b'{"message":"Too Many Requests"}', 429), Unavailable),
        (refused("unavailable", 503), Unavailable),
        (Reply(b"\xff\xfe", 502), Unavailable),
        (Reply(b"hello"), BrokenBatch),
        (Reply(encode_batch(PAGES).encode()[:-1]), BrokenBatch),
        (Reply(b"abc", headers={"Content-Encoding": "gzip"}), BrokenBatch),
        (Reply(b"abc", headers={"Content-Length": "7", "Connection": "close"}), Unavailable),
    ],
)
def test_D12_what_is_no_answer_is_an_error(
    upstream: Upstream, reply: Reply, error: type[Exception]
) -> None:
    """One that is tried again, or one for an operator; a redirect is not followed."""
    upstream.reply = reply
    with pytest.raises(error):
        read(upstream)
    assert len(upstream.asked) == 1


def test_D12_an_unreachable_upstream_is_unavailable() -> None:
    """A port that nothing listens on."""
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 did not answer"):
        HttpUpstream(lambda: "").rows("http://127.0.0.1:1/feeds/main", 0, None, ALL)


def test_an_answer_is_bounded(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed and unpacked: an upstream cannot fill our memory."""
    monkeypatch.setattr(http_upstream, "BYTES_MAX", 10_000)
    upstream.reply = Reply(b"x" * 10_001)
    with pytest.raises(BrokenBatch, match="more than 10000 bytes"):
        read(upstream)
    upstream.reply = Reply(gzip.compress(b"x" * 10_001), headers={"Content-Encoding": "gzip"})
    with pytest.raises(BrokenBatch, match="the data inflates to more than"):
        read(upstream)


def test_an_answer_that_trickles_is_given_up(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up before the relay's lease ends: each byte is in time, but not all of them."""
    monkeypatch.setattr(http_upstream, "CONNECT_S", 1)
    monkeypatch.setattr(http_upstream, "SLACK_S", 2)
    upstream.reply = Reply(encode_batch(PAGES).encode(), pause_s=0.05)
    with pytest.raises(Unavailable, match="takes too long"):
        read(upstream)


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
