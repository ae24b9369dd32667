"""HTTP by curl, directly and behind nginx: versions, methods, and changes made by proxies."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import PATIENCE_S, until
from tests.world.nginx import Nginx
from tests.world.streams import Reader
from tidings.server.running import Server

pytestmark = [pytest.mark.nginx, pytest.mark.curl]
PREFIX = "app"
FILES = 256  # descriptors of a server that silent clients try to use up
SILENT = 300
READ = (
    "health",
    "status",
    "metrics",
    "feeds/{feed}/changes",
    "feeds/{feed}/objects",
    "openapi.json",
)


class Answer:
    """What `curl -i` printed: the last head and its body."""

    def __init__(self, printed: bytes) -> None:
        head, _, self.body = printed.partition(b"\r\n\r\n")
        while b" 100 " in head.partition(b"\r\n")[0]:
            head, _, self.body = self.body.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}


def curl(*options: str) -> Answer:
    """Return the answer to one request; fail if curl does, as for a broken answer."""
    done = subprocess.run(
        ["curl", "-si", "--max-time", f"{PATIENCE_S:.0f}", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, options, done.stdout)
    return Answer(done.stdout)


def _reads(server: Server, feed: Feed) -> list[str]:
    return [server.url + path.format(feed=feed.name) for path in READ]


def test_an_answer_for_http_1_0_is_not_chunked(server: Server, feed: Feed) -> None:
    """Its end is its length or the end of the connection, and the body is the same."""
    feed.post(*[op(f"x{number}", data="x" * 1000) for number in range(500)])
    feed.settle()
    for url in _reads(server, feed):
        answer = curl("-0", url)
        assert answer.status == 200, url
        assert "transfer-encoding" not in answer.headers, url
        assert answer.headers.get("content-length", str(len(answer.body))) == str(len(answer.body))
        if "status" not in url and "metrics" not in url:  # these two change from one to the next
            assert answer.body == curl(url).body, url


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_a_stream_for_http_1_0_is_not_chunked(feed: Feed, server: Server, accept: str) -> None:
    """Each event arrives as it is posted; nothing but the stream is in the body."""
    (start,) = feed.post(op("x"))
    url = f"{server.url}feeds/{feed.name}/ops?lastEventId={start}"
    command = ["curl", "-sN0", "-D", "/dev/stderr", "-H", f"Accept: {accept}", url]
    with Reader(command) as reader:
        for name in ("y1", "y2"):
            reader.until(*feed.post(op(name)))
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        path = f"/feeds/{feed.name}/ops"
        head = f"GET {path} HTTP/1.0\r\naccept: {accept}\r\nlast-event-id: {start}\r\n\r\n"
        connection.sendall(head.encode())
        answer = b""
        while b"y2" not in answer:
            more = connection.recv(65_536)
            assert more, answer
            answer += more
    assert b"transfer-encoding" not in answer.partition(b"\r\n\r\n")[0].lower()


def test_head_is_get_without_a_body(server: Server, feed: Feed) -> None:
    """With the same status and type, directly and through a proxy."""
    feed.post(op("x"))
    feed.settle()
    for url in _reads(server, feed):
        got, head = curl(url), curl("-I", url)
        assert (head.status, head.body) == (200, b""), url
        assert head.headers["content-type"] == got.headers["content-type"], url


def test_an_answer_has_its_date(server: Server, nginx: Nginx, feed: Feed) -> None:
    """Also one that refuses, and a stream."""
    for url in (*_reads(server, feed), f"{server.url}nowhere", f"{server.url}feeds/none/changes"):
        assert curl(url).headers["date"].endswith(" GMT"), url
    assert curl("-XPOST", "-d", "no", server.url).headers["date"].endswith(" GMT")


def test_a_request_of_http_1_1_names_its_host(server: Server) -> None:
    """Else it is refused; HTTP/1.0 has none."""
    for version, status in ((b"1.1", b" 400 "), (b"1.0", b" 200 ")):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
            connection.sendall(b"GET /health HTTP/" + version + b"\r\n\r\n")
            assert status in connection.recv(65_536).partition(b"\r\n")[0]
    assert curl("-H", "Host:", f"{server.url}health").status == 400


def test_a_type_of_no_quality_is_not_accepted(server: Server) -> None:
    """`q=0` means: not this one."""
    assert curl("-H", "Accept: text/event-stream;q=0", server.url).status == 406
    assert curl("-H", "Accept: text/event-stream;q=0, */*;q=0", server.url).status == 406


@pytest.mark.parametrize("way", ["direct", "plain", "http2"])
def test_a_large_file_is_posted(
    server: Server, nginx: Nginx, feed: Feed, tmp_path: Path, way: str
) -> None:
    """By `curl -d @FILE`, which sends `Expect: 100-continue`, and nothing is lost of it."""
    file = tmp_path / "operations.json"
    file.write_text(json.dumps([op(f"x{number}", data="x" * 1000) for number in range(900)]))
    base = server.url if way == "direct" else nginx.url(way)
    posted = curl(
        "--cacert", str(nginx.authority), "-H", "Content-Type: application/json",
        "-H", "Expect: 100-continue", "-d", f"@{file}", f"{base}feeds/{feed.name}/ops",
    )  # fmt: skip
    assert posted.status == 204, posted.body
    assert feed.status()["events_received"] == 900


def test_a_body_that_is_too_large_is_refused(server: Server, tmp_path: Path) -> None:
    """With 413, which the client reads, whether or not it waits before it sends the body."""
    file = tmp_path / "large"
    file.write_bytes(b" " * (11 * 1024 * 1024))
    head = ("-H", "Content-Type: application/json", "--data-binary", f"@{file}", server.url)
    for expect in ("Expect: 100-continue", "Expect:"):
        assert curl("-H", expect, *head).status == 413


def test_a_packed_body_is_not_taken_for_its_bytes(server: Server, tmp_path: Path) -> None:
    """It is unpacked, or refused with 415."""
    file = tmp_path / "packed"
    file.write_bytes(gzip.compress(b"a message"))
    stream = f"{server.url}feeds/main/v1/stream/packed"
    text = ("-H", "Content-Type: text/plain")
    assert curl("-XPUT", *text, stream).status == 201
    sent = curl("-H", "Content-Encoding: gzip", *text, "--data-binary", f"@{file}", stream)
    assert sent.status in (200, 204, 415)
    assert curl(f"{stream}?offset=-1").body == (b"" if sent.status == 415 else b"a message")


def test_a_long_list_through_gzip(nginx: Nginx, feed: Feed) -> None:
    """Packed by the proxy or not: the unpacked answer is the whole list."""
    feed.post(*[op(f"x{number}", data="x" * 1000) for number in range(500)])
    feed.settle()
    path = f"feeds/{feed.name}/objects?limit=1000"
    packed = curl("--compressed", nginx.url("gzip") + path)
    assert packed.body == curl(nginx.url("plain") + path).body
    assert len(json.loads(packed.body)["objects"]) > 100


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """In front of a server that knows the path below which it is served."""
    folder = tmp_path_factory.mktemp("prefixed")
    with (
        Server("--setting", f"TIDINGS_URL_PREFIX=/{PREFIX}") as server,
        Nginx(folder, server.port) as nginx,
    ):
        yield nginx


@pytest.mark.parametrize("path", ["console", "console/", "changes/", "status", "health", "changes"])
def test_a_path_below_a_prefix(prefixed: Nginx, path: str) -> None:
    """Each redirect stays below it."""
    found = subprocess.run(
        ["curl", "-sL", "-o", "/dev/null", "-w", "%{http_code} %{url_effective}",
         prefixed.url("prefix") + path],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    status, _, ended = found.partition(" ")
    assert status == "200"
    assert f"/{PREFIX}/" in ended


def test_links_below_a_prefix(prefixed: Nginx) -> None:
    """Each is one that the proxy takes."""
    links = json.loads(curl("-H", "Accept: application/json", prefixed.url("prefix")).body)
    assert links
    assert [link for link in links.values() if f"/{PREFIX}/" not in link] == []
    stream = prefixed.url("prefix") + "feeds/main/v1/stream/s"
    made = curl("-XPUT", "-H", "Content-Type: text/plain", stream)
    assert made.status == 201
    assert f"/{PREFIX}/feeds/main/v1/stream/s" in made.headers["location"]


def _started_with_few_files(stack: ExitStack) -> Server:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, limits[1]))
    try:
        return stack.enter_context(Server())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _silent(stack: ExitStack, port: int, sent: Sequence[bytes]) -> None:
    for number in range(SILENT):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        connection.sendall(sent[number % len(sent)])


def test_silent_clients_lock_nobody_out() -> None:
    """More of them than the server has descriptors, with no request or with half of one."""
    with ExitStack() as stack:
        server = _started_with_few_files(stack)
        _silent(stack, server.port, (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"))
        assert curl(f"{server.url}health").status == 200
        feed = Feed(server.port, "main")
        until(lambda: len(feed.post(op("x"))) == 1)
