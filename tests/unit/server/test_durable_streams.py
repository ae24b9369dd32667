"""Durable streams of a running server (PROTOCOL 21), in addition to the checks of their own
suite."""

from __future__ import annotations

import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.hosts import make_key
from tests.unit.core.scene import NOW, Scene
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.core.durable_streams.service import StreamWriter
from tidings.core.durable_streams.stream import Appending, Extent, Producer, Stream
from tidings.core.errors import Unavailable
from tidings.core.log.append import Appender
from tidings.core.model.cursors import Place
from tidings.core.tracing import OFF, Tracer
from tidings.server.running import Server
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteClaims, SqliteLog, SqliteStreams

OPTIONS = ("--allow-origin", "https://page.example")
JSON, TEXT = {"content-type": "application/json"}, {"content-type": "text/plain"}
NDJSON = "application/x-ndjson"
PATIENCE_S = 180.0
KILLS, BETWEEN = 2, 20
CLIENT = httpx.Client(timeout=PATIENCE_S)


def url_of(server: Server, name: str) -> str:
    return f"{server.url}feeds/main/v1/stream/{name}"


def ask(
    server: Server, method: str, name: str, headers: Mapping[str, str] = {}, body: bytes = b""
) -> httpx.Response:
    url = url_of(server, name)
    return CLIENT.request(method, url, headers=dict(headers), content=body)


def produced(seq: int, epoch: int = 0) -> dict[str, str]:
    return {"producer-id": "p", "producer-epoch": f"{epoch}", "producer-seq": f"{seq}"}


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def log(server: Server, name: str) -> list[dict[str, Any]]:
    """Return the events of the stream *name* that consumers of the feed get, with their ids."""
    url = f"{server.url}feeds/main/log"
    ends = CLIENT.get(url).json()
    span = {"from": ends["oldest"], "to": ends["current"], "limit": "1000"}
    entries = CLIENT.get(url, params=span).json()["entries"]
    return [each for each in entries if each["data"]["id"] == name]


def test_a_stream_is_an_object_of_its_feed(server: Server) -> None:
    """P21.1, P21.2: every consumer gets the messages; the state has the last one until the stream
    is deleted.
    """
    made = ask(server, "PUT", "a%2Fb", JSON)
    ask(server, "POST", "a%2Fb", JSON, b'[{"n":1},[2]]')
    heard = log(server, "a/b")
    copy = {"lastEventId": "0", "types": "durable-stream", "ids": "a/b"}
    with CLIENT.stream("GET", server.url, params=copy, headers={"accept": NDJSON}) as told:
        lines = map(json.loads, told.iter_lines())
        rows = [*itertools.takewhile(lambda each: each["event"] != "live", lines)]
    gone = ask(server, "DELETE", "a%2Fb")

    assert (made.status_code, made.headers["location"]) == (201, url_of(server, "a%2Fb"))
    assert [(each["event"], each["data"]["data"]) for each in heard] == [
        ("update", {"n": 1}),
        ("update", [2]),
    ]
    assert rows[-1]["data"]["data"] == [2]
    assert gone.status_code == 204
    assert [each["event"] for each in log(server, "a/b")] == ["update", "update", "delete"]
    assert code(ask(server, "GET", "a%2Fb")) == (404, "unknown_stream")


def test_a_live_reader_hears_at_once(server: Server) -> None:
    """P21.7: it gets a message, the end, and the deletion of the stream."""
    ask(server, "PUT", "live", TEXT, b"a")
    with httpx.stream("GET", url_of(server, "live?offset=now&live=sse"), timeout=30) as events:
        lines = events.iter_lines()
        told = [next(lines) for _ in range(3)]
        ask(server, "POST", "live", TEXT, b"b\nc")
        told += [next(lines) for _ in range(7)]
        ask(server, "POST", "live", {"stream-closed": "true"})
        told += list(lines)
    polled = ask(server, "GET", f"live?offset={json.loads(told[1][5:])['streamNextOffset']}")

    assert events.headers["content-type"] == "text/event-stream"
    for each in (events, polled):
        assert each.headers["x-accel-buffering"] == "no"
        assert each.headers["cache-control"].endswith(", no-transform")
    assert told[0] == told[7] == told[10] == "event: control"
    assert told[3:6] == ["event: data", "data:b", "data:c"]
    assert json.loads(told[11][5:]).keys() == {"streamNextOffset", "upToDate", "streamClosed"}
    assert polled.text == "b\nc"


def test_a_long_poll_ends_with_the_stream(server: Server) -> None:
    """P21.7: a client that waits for a stream gets 404 when the stream is deleted."""
    ask(server, "PUT", "poll", TEXT, b"a")
    statuses: list[int] = []
    waiting = threading.Thread(
        target=lambda: statuses.append(
            ask(server, "GET", "poll?offset=now&live=long-poll").status_code
        )
    )
    waiting.start()
    time.sleep(0.2)
    ask(server, "DELETE", "poll")
    waiting.join(limits.STREAM_WAIT_S / 2)

    assert statuses == [404]


def test_what_is_kept_by_caches(server: Server) -> None:
    """P21.8: final content is cached for a minute; the end of an open stream is validated each
    time."""
    ask(server, "PUT", "cached", TEXT, b"a")
    open_ = ask(server, "GET", "cached")
    ask(server, "POST", "cached", {"stream-closed": "true"})
    closed = ask(server, "GET", "cached", {"if-none-match": open_.headers["etag"]})
    again = ask(server, "GET", "cached", {"if-none-match": closed.headers["etag"]})

    assert open_.headers["cache-control"] == "private, no-cache, no-transform"
    assert (closed.status_code, again.status_code) == (200, 304)
    assert closed.headers["cache-control"].startswith("private, max-age=60")
    assert "no-store" in ask(server, "GET", "cached?offset=now").headers["cache-control"]


def test_a_page_may_read_and_post(server: Server) -> None:
    """P21.1: a page of an allowed origin can read the headers, and send content that no form
    can."""
    page = {"origin": "https://page.example"}
    asked = {"access-control-request-method": "POST"}
    allowed = ask(server, "OPTIONS", "page", page | asked).headers
    made = ask(server, "PUT", "page", page | JSON, b"[1]")
    text = ask(server, "PUT", "text", page | TEXT, b"x")
    stranger = ask(server, "PUT", "page", JSON | {"origin": "https://other.example"}, b"[1]")

    assert {"producer-id", "if-none-match"} <= set(
        allowed["access-control-allow-headers"].split(", ")
    )
    assert "PUT" in allowed["access-control-allow-methods"]
    assert made.headers["access-control-allow-origin"] == page["origin"]
    assert "stream-next-offset" in made.headers["access-control-expose-headers"]
    for answer in (made, ask(server, "GET", "page", page), ask(server, "GET", "nowhere", page)):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (code(text)[0], code(stranger)[0]) == (415, 403)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Server]:
    """Yield a server for one test, which its keys close."""
    with Server(data=tmp_path) as running:
        yield running


def test_keys_open_what_their_role_and_bound_say(alone: Server) -> None:
    """P21.1: `ingest` appends and `read` reads; a bound by types names that of streams."""

    def status(method: str, *options: str) -> int:
        key = make_key(alone, *options)
        headers = JSON | {"authorization": f"Bearer {key}"}
        return ask(alone, method, "keys", headers, b"1" if method == "PUT" else b"").status_code

    assert status("PUT", "--role", "ingest", "--type", "durable-stream") == 201
    assert status("PUT", "--role", "read") == 403
    assert status("PUT", "--role", "ingest", "--type", "video") == 403
    assert status("GET", "--role", "read", "--type", "durable-stream") == 200
    assert status("GET", "--role", "read", "--parent", "user/1") == 403
    assert status("GET", "--role", "ingest") == 403


def test_a_producer_id_belongs_to_its_credential(alone: Server) -> None:
    """P21.6: another key takes over no epoch; neither loses a message that was acknowledged."""
    keys = [make_key(alone, "--role", "ingest", "--role", "read") for _ in range(2)]
    victim, other = ({"authorization": f"Bearer {key}"} for key in keys)
    ask(alone, "PUT", "taken", JSON | victim)
    answers = [
        ask(alone, "POST", "taken", JSON | shown | produced(seq, epoch), body)
        for shown, seq, epoch, body in (
            (victim, 0, 0, b"1"),
            (other, 0, 9, b"2"),
            (victim, 1, 0, b"3"),
            (other, 1, 9, b"4"),
            (victim, 1, 0, b"3"),
        )
    ]

    assert [each.status_code for each in answers] == [200, 200, 200, 200, 204]
    assert answers[2].headers["producer-epoch"] == "0"
    assert ask(alone, "GET", "taken?offset=-1", victim).json() == [1, 2, 3, 4]


def test_a_method_that_a_stream_does_not_take(server: Server) -> None:
    """This is so on every path; a path below a stream is unknown."""
    answer = ask(server, "PATCH", "method", JSON, b"1")

    assert code(answer) == (405, "wrong_method")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST, PUT, OPTIONS"
    assert code(ask(server, "GET", "a/b")) == (404, "unknown_path")


def test_what_is_known_of_pages_goes_with_them(tmp_path: Path) -> None:
    """P21.5: a stream that is never deleted costs a document, not a row for each page it had."""
    database = Database(tmp_path / "feed.db")
    store, begins = SqliteStreams(database), Place(0, 0, 0)
    places = [Place(page, 0, 0) for page in (1, 2, 3)]
    for place in places:
        stream = Stream("s", "text/plain", begins, place)
        store.write("main", stream, Extent(begins, place))
    SqliteLog(database).raise_floor("main", 3)

    assert [each.last for each in store.extents("main", "s", begins, 9)] == places[2:]
    assert store.stream("main", "s") == stream
    database.close()


class Failing(SqliteStreams):
    """A store with a last write that finds the disk full."""

    fails = False

    def write(self, feed: str, stream: Stream, extent: Extent | None = None) -> None:
        super().write(feed, stream, extent)
        if self.fails:
            raise Unavailable("no room")


def test_a_page_and_its_producer_are_written_together(tmp_path: Path) -> None:
    """P21.6: where one is not, the other is not, and the producer tries again."""
    database = Database(tmp_path / "feed.db")
    pages, store = SqliteLog(database), Failing(database)
    runtime = replace(Scene().runtime, clock=lambda: NOW)
    appender = Appender(log=pages, claims=SqliteClaims(database), runtime=runtime)
    writer = StreamWriter(
        appender=appender, store=store, runtime=runtime, tracer=Tracer(OFF, runtime)
    )
    writer.create("main", "s", Appending(b"a", "text/plain"))
    before = store.stream("main", "s"), pages.head("main")
    appending = Appending(b"b", "text/plain", producer=Producer("p", 0, 0))
    store.fails = True
    with pytest.raises(Unavailable):
        writer.append("main", "s", appending)

    assert (store.stream("main", "s"), pages.head("main")) == before
    store.fails = False
    assert [writer.append("main", "s", appending)[1] for _ in range(2)] == [True, False]
    database.close()


class Appends(threading.Thread):
    """Appends 0, 1, 2 … to the stream at *url*, each until it is answered."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.answered: list[int] = []
        self.torn = 0
        self.is_wanted = True
        self._url = url

    def run(self) -> None:
        while self.is_wanted:
            seq = len(self.answered)
            headers = JSON | produced(seq)
            try:
                answer = CLIENT.post(self._url, content=f"{seq}", headers=headers)
            except httpx.TransportError:
                self.torn += 1
                time.sleep(0.02)
            else:
                self.answered.append(answer.status_code)

    def wait(self, count: int) -> None:
        """Wait until *count* more appends are answered."""
        enough, deadline = len(self.answered) + count, time.monotonic() + PATIENCE_S
        while len(self.answered) < enough:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_nothing_is_lost_or_twice_when_the_server_is_killed(tmp_path: Path) -> None:
    """P21.6: a producer repeats unanswered appends, while the server is killed with `kill -9`
    during them.
    """
    with Server(data=tmp_path) as server:
        ask(server, "PUT", "killed", JSON)
        appends = Appends(url_of(server, "killed"))
        appends.start()
        for _ in range(KILLS):
            appends.wait(BETWEEN)
            server.kill()
            server.start()
        appends.wait(1)
        appends.is_wanted = False
        appends.join(PATIENCE_S)
        told = ask(server, "GET", "killed").json()

    assert appends.torn >= KILLS
    assert set(appends.answered) <= {200, 204}
    assert told == [*range(len(appends.answered))]


def test_10_6_a_reader_that_takes_nothing_is_cut_when_its_key_is_revoked() -> None:
    """P10.6: it is disconnected within 5 s, long before a client that does not read."""
    with Server() as server, socket.socket() as client:
        write, read = make_key(server, "--role", "ingest"), make_key(server, "--role", "read")
        headers = {**JSON, "authorization": f"Bearer {write}"}
        ask(server, "PUT", "s", headers)
        body = json.dumps(["x" * 60_000] * 15).encode()
        for _ in range(8):
            assert ask(server, "POST", "s", headers, body).is_success
        url = httpx.URL(url_of(server, "s"))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((url.host, url.port or 80))
        head = f"GET {url.path}?offset=-1&live=sse HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n"
        client.sendall(f"{head}Authorization: Bearer {read}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        done = CliRunner().invoke(main, ["keys", "revoke", *server.locator, read.split("_")[1]])
        assert done.exit_code == 0, done.output
        cut = select.poll()
        cut.register(client, 0)  # errors alone, as nothing is read
        assert cut.poll(PATIENCE_S * 1000)
        with pytest.raises(ConnectionResetError):
            while not client.recv(1 << 20).endswith(b"\r\n0\r\n\r\n"):
                pass
