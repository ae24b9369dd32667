"""Calling webhooks: time-outs, addresses, and that nothing is sent after a time-out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.contract.answering import Answer, answering
from tidings.core.changeagent.webhooks import Outgoing, Verdict
from tidings.core.errors import Unavailable
from tidings.http.outbound.webhooks import Poster

SHORT_S = 0.4
PATIENCE_S = 180.0
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"


def outgoing(url: str, body: str = "{}") -> Outgoing:
    return Outgoing(url, {"content-type": "application/json"}, body)


@contextmanager
def raw(*answers: bytes, drip_s: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that sends *answers*, one for each connection, one byte each *drip_s*; yield its
    requests.
    """
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(65536))
                step = 1 if drip_s else len(answer) or 1
                with suppress(OSError):  # the caller has closed the connection
                    for at in range(0, len(answer), step):
                        time.sleep(drip_s)
                        connection.sendall(answer[at : at + step])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/", asked
    server.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 308 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 199 Almost\r\n\r\nHTTP/1.1 500 No\r\n\r\n",
        b"HTTP/1.1 99999 Yes\r\n\r\n",
        HINTS + b"HTTP/1.1 500 No\r\n\r\n",
        HINTS,
        HINTS * 100 + b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
def test_what_lies_or_leads_elsewhere_has_not_taken_it(answer: bytes) -> None:
    """Redirects are not followed; an answer that is not HTTP, or too long, is a failure."""
    with raw(answer) as (url, asked):
        (verdict,) = Poster(private=True, timeout_s=PATIENCE_S)([outgoing(url)])

    assert not verdict.accepts and len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        HINTS + b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 102 \r\n\r\n" + HINTS * 3 + b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 199 Almost\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_what_comes_behind_the_status_is_not_looked_at(answer: bytes) -> None:
    """The body is not read, and not waited for, whatever its length."""
    with raw(answer) as (url, asked):
        began = time.monotonic()
        (verdict,) = Poster(private=True, timeout_s=PATIENCE_S)([outgoing(url)])
        assert time.monotonic() - began < PATIENCE_S / 2

    assert verdict.accepts and len(asked) == 1


def test_an_endpoint_that_says_nothing_or_little_is_given_up() -> None:
    """The time is for the whole of an answer, not for each byte of it."""
    drips = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"  # for a minute
    with raw(drips, drip_s=0.05) as (slow, _), answering(Answer()) as mute, mute.lock:
        began = time.monotonic()
        said = Poster(private=True, timeout_s=SHORT_S)([outgoing(slow), outgoing(mute.url)])
        assert time.monotonic() - began < PATIENCE_S / 2

    assert said == [Verdict(failure=f"WebHook did not answer within {SHORT_S} seconds")] * 2


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event; no name is resolved before it is set."""
    resolve, let_go = socket.getaddrinfo, threading.Event()

    def slowly(*arguments: object, **more: object) -> object:
        let_go.wait(PATIENCE_S)
        return resolve(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    return let_go


def calls() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("hook")]


def ended() -> bool:
    """Return True if every call ends soon."""
    deadline = time.monotonic() + PATIENCE_S
    while calls() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not calls()


def test_nothing_is_sent_once_it_was_given_up(resolves: threading.Event) -> None:
    """A name that resolves slowly must not cause a call after the next attempt."""
    with answering(Answer()) as endpoint:
        (said,) = Poster(private=True, timeout_s=SHORT_S)([outgoing(endpoint.url)])
        resolves.set()
        assert ended()

    assert "did not answer" in said.failure and endpoint.asked == []


def test_nothing_is_sent_by_a_poster_that_was_closed(resolves: threading.Event) -> None:
    """This includes a request with time left."""
    poster = Poster(private=True, timeout_s=PATIENCE_S)
    with answering(Answer()) as endpoint:
        poster.close()
        with pytest.raises(Unavailable):
            poster([outgoing(endpoint.url)])
        resolves.set()
        assert ended()

    assert endpoint.asked == []


def test_a_handshake_that_never_ends_is_cut() -> None:
    """Single bytes of TLS at intervals would keep a thread forever."""
    record = b"\x16\x03\x03\x40\x00" + bytes(400)
    with raw(record, drip_s=0.05) as (url, asked):
        tls = outgoing(url.replace("http:", "https:"))
        (said,) = Poster(private=True, timeout_s=SHORT_S)([tls])
        assert ended()

    assert "did not answer" in said.failure and len(asked) == 1


def test_a_name_is_resolved_once_and_all_its_addresses_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name with a private address among others is not called, and not resolved again."""
    asked: list[object] = []

    def both(host: object, port: int, **_: object) -> object:
        asked.append(host)
        family = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        return [(*family, ("192.0.43.7", port)), (*family, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    (said,) = Poster(private=False, timeout_s=SHORT_S)([outgoing("http://rebinds.example/")])

    assert said == Verdict(failure="WebHook is at an address that may not be called")
    assert asked == ["rebinds.example"]


def test_the_next_address_is_called_if_one_does_not_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No request was sent to the address that refused, so none is sent twice."""
    with answering(Answer(200)) as one:
        port = int(one.url.rpartition(":")[2])
        names = {"refuses": ("127.0.0.3", "127.0.0.1"), "alone": ("127.0.0.3",)}

        def several(host: str, port: int, *_: object, **__: object) -> object:
            found = names.get(host, (host,))
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

        monkeypatch.setattr(socket, "getaddrinfo", several)
        urls = [outgoing(f"http://{host}:{port}/") for host in names]
        said = Poster(private=True, timeout_s=PATIENCE_S)(urls)

    assert [each.accepts for each in said] == [True, False] and len(one.asked) == 1


@pytest.mark.parametrize("host", ["a..example", "x" * 64 + ".example", ".example"])
def test_a_name_that_is_none_is_a_failure_like_others(host: str) -> None:
    """Python raises its own errors for these; they are reported, and the call is repeated later."""
    (said,) = Poster(private=True, timeout_s=SHORT_S)([outgoing(f"https://{host}/")])

    assert not said.accepts and "could not be called" in said.failure


def test_a_poster_that_closes_says_nothing_of_what_was_under_way() -> None:
    """It is unknown whether the request was accepted; the close does not wait for it."""
    poster = Poster(private=True, timeout_s=PATIENCE_S)
    with answering(Answer()) as mute, mute.lock:
        threading.Timer(SHORT_S, poster.close).start()
        began = time.monotonic()
        with pytest.raises(Unavailable):
            poster([outgoing(mute.url)])
        assert time.monotonic() - began < PATIENCE_S / 2


def test_bodies_and_headers_arrive_as_they_are() -> None:
    """In UTF-8, each to its own endpoint, and all at once."""
    with answering(Answer(200)) as one, answering(Answer(503)) as other:
        requests = [outgoing(f"{one.url}/a?b=c", '"\u00fc"'), outgoing(other.url, "2")]
        said = Poster(private=True, timeout_s=PATIENCE_S)(requests)

    assert [each.status for each in said] == [200, 503]
    assert (one.asked[0].path, one.asked[0].body) == ("/a?b=c", '"\u00fc"'.encode())
    assert other.asked[0].body == b"2"


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "[::ffff:7f00:1]", "[::1]"]
)
def test_no_spelling_of_an_address_gets_past_the_check(host: str) -> None:
    """The address that the name was resolved to is checked, not its text."""
    (said,) = Poster(private=False, timeout_s=30)([outgoing(f"http://{host}:1/")])

    assert said == Verdict(failure="WebHook is at an address that may not be called")
