"""Bodies of requests on a running server: access, encodings, and HEAD."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import httpx
import pytest
from websockets.sync.client import connect

from tests.unit.server.test_crashes import FEED, hosted
from tidings.core.limits import GZIP_MEMBERS_MAX, REQUEST_BYTES_MAX
from tidings.http.asgi import ARRIVAL, Arrival, Message
from tidings.http.request import Request
from tidings.server.host import HEAVY_THREADS
from tidings.server.running import Server

PATIENCE_S = 180.0
PASSWORD, READ = "the ingest password", "the read password"
BASIC = "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()
READS = "Basic " + base64.b64encode(f":{READ}".encode()).decode()
OPERATION = json.dumps({"event": "update", "type": "video", "id": "x32"}).encode()
JSON = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Producers need the one password, readers the other."""
    secret: Path = tmp_path_factory.mktemp("secrets") / "ingest"
    secret.write_text(PASSWORD)
    reading: Path = secret.with_name("read")
    reading.write_text(READ)
    options = ("--read-password-file", str(reading), "--setting", "TIDINGS_URL_PREFIX=/app")
    with Server("--ingest-password-file", str(secret), *options) as running:
        yield running


def told(server: Server, request: str, fields: str, body: bytes = b"") -> str:
    """Return the head of the answer to *request*; of its body only *body* is sent."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        connection.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
        connection.sendall(body)
        head = b""
        while b"\r\n\r\n" not in head and (part := connection.recv(4096)):
            head += part
        return head.partition(b"\r\n\r\n")[0].decode().lower()


@pytest.mark.parametrize(
    ("request_line", "fields", "status"),
    [
        ("POST /", JSON, 401),
        ("POST /ops", JSON, 401),
        ("POST /feeds/main/ops", JSON, 401),
        ("POST /feeds/other/ops", JSON, 404),
        ("POST /feeds/main/changefeeds", JSON, 401),
        ("POST /changes", JSON, 401),
        ("POST /feeds/main/changes", JSON, 401),
        ("POST /feeds/main/corrections", "Content-Type: application/x-ndjson\r\n", 401),
        ("POST /feeds/main/corrections/rows", JSON, 401),
        ("PUT /feeds/main/consumers/c", JSON, 401),
        ("POST /feeds/main/consumers/c/lease", JSON, 401),
        ("POST /feeds/main/consumers/c/pause", JSON, 401),
        ("PUT /feeds/main/hooks/h", JSON, 401),
        ("POST /feeds/main/keys/k/revoke", JSON, 401),
        ("PUT /config", "Content-Type: application/yaml\r\n", 401),
        ("PUT /health", "Content-Type: application/x-www-form-urlencoded\r\n", 401),
        ("PUT /feeds/main/v1/stream/s", JSON, 401),
        ("POST /feeds/main/v1/stream/s", JSON, 401),
        ("POST /nothing", JSON, 404),
        ("PUT /ops", JSON, 405),
        ("POST /", f"Authorization: {BASIC}\r\nContent-Type: text/plain\r\n", 415),
        ("POST /", f"Authorization: {BASIC}\r\n{JSON}Content-Encoding: br\r\n", 415),
        ("POST /", f"{JSON}Origin: https://page.example\r\n", 403),
    ],
)
@pytest.mark.parametrize(
    "body",
    ["Content-Length: 9000000\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 9\r\n"],
)
def test_a_refusal_does_not_wait_for_the_body(
    server: Server, request_line: str, fields: str, status: int, body: str
) -> None:
    """The answer comes before any byte of the body is sent, with or without `Expect`."""
    for expects in ("", "Expect: 100-continue\r\n"):
        answer = told(server, request_line, fields + body + expects)
        assert answer.startswith(f"http/1.1 {status} ")
        assert "connection: close" in answer


def test_a_body_that_is_too_large_is_not_waited_for(server: Server) -> None:
    """Its declared length is enough to refuse it."""
    fields = f"Authorization: {BASIC}\r\n{JSON}Content-Length: 99999999\r\n"
    assert told(server, "POST /", fields).startswith("http/1.1 413 ")


def test_who_may_post_is_asked_for_the_body(server: Server) -> None:
    """By `100 Continue`, once the credentials were checked."""
    fields = f"Authorization: {BASIC}\r\n{JSON}Content-Length: {len(OPERATION)}\r\n"
    assert told(server, "POST /", fields + "Expect: 100-continue\r\n").startswith("http/1.1 100 ")
    assert told(server, "POST /", fields, OPERATION).startswith("http/1.1 204 ")


def test_a_body_in_pieces_is_whole(server: Server) -> None:
    """The body comes after the head, in chunks."""
    pieces = iter([OPERATION[:5], OPERATION[5:9], OPERATION[9:]])
    headers = {"authorization": BASIC, "content-type": "application/json"}
    answer = httpx.post(server.url, content=pieces, headers=headers, timeout=PATIENCE_S)
    assert answer.status_code == 204


def post(server: Server, body: bytes, encoding: str, path: str = "") -> httpx.Response:
    headers = {
        "authorization": BASIC,
        "content-type": "application/json",
        "content-encoding": encoding,
    }
    return httpx.post(server.url + path, content=body, headers=headers, timeout=PATIENCE_S)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "gzip, identity"])
def test_gzip_is_decompressed(server: Server, encoding: str) -> None:
    """This includes several members; the Idempotency-Key is that of the plain body."""
    half = len(OPERATION) // 2
    body = gzip.compress(OPERATION[:half]) + gzip.compress(OPERATION[half:])
    assert post(server, body, encoding).status_code == 204


def test_identity_is_no_encoding(server: Server) -> None:
    """An empty list of encodings is accepted, too."""
    assert [post(server, OPERATION, each).status_code for each in ("identity", "")] == [204] * 2


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "gzip, br", "zstd", "x"])
@pytest.mark.parametrize(
    "path", ["", "changes", "feeds/main/v1/stream/s", "feeds/main/corrections"]
)
def test_another_encoding_is_415(server: Server, encoding: str, path: str) -> None:
    """The answer says which one is accepted."""
    answer = post(server, OPERATION, encoding, path)
    if path == "feeds/main/corrections":  # the type of the content is wrong first
        assert answer.status_code == 415
        return
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzip.compress(OPERATION)[:-4], 400),
        (gzip.compress(OPERATION) + b"x", 400),
        (OPERATION, 400),
        (b"", 400),
        (gzip.compress(b" " * (REQUEST_BYTES_MAX + 1)), 413),
        (gzip.compress(b" " * 200_000_000, 1), 413),
        (gzip.compress(b"") * (GZIP_MEMBERS_MAX - 1) + gzip.compress(OPERATION), 204),
        (gzip.compress(b"") * GZIP_MEMBERS_MAX + gzip.compress(OPERATION), 413),
        (gzip.compress(b"") * 400_000, 413),
        (gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 300_000, 413),
        (gzip.compress(b"")[:3] + b"\x08" + b"\0" * 6 + b"name" * 10_000, 400),
    ],
)
def test_gzip_that_breaks_a_rule_is_refused(server: Server, body: bytes, status: int) -> None:
    """One that ends early, other bytes, and a bomb; no more than a request is decompressed."""
    assert post(server, body, "gzip").status_code == status


@pytest.mark.parametrize(
    ("body", "encoding", "is_small"),
    [
        (b" " * 100, "", True),
        (b" " * 101, "", False),
        (gzip.compress(b" " * 100), "gzip", True),
        (gzip.compress(b" " * 101), "gzip", False),
        (gzip.compress(b" " * 50) + gzip.compress(b" " * 51), "gzip", False),
        (gzip.compress(b" " * 1_000_000), "gzip", False),
        (b"not gzip", "gzip", True),
        (b" " * 100, "br", True),
        (None, "gzip", True),
    ],
)
def test_the_size_of_a_body_is_that_after_decompression(
    body: bytes | None, encoding: str, is_small: bool
) -> None:
    """It decides where the request runs; bodies that are refused without decoding are small."""
    request = Request("POST", "/", "", {"content-encoding": encoding}, body=body)
    assert request.is_within(100) == is_small


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_large_request_whose_client_left_is_not_processed(tmp_path: Path, is_gone: bool) -> None:
    """It waits for others; a thousand clients that left would keep the threads busy."""
    body = gzip.compress(b" " * 20_000 + OPERATION)

    async def post() -> int:
        async with hosted(tmp_path / "feed.db") as (host, app):
            arrival, sent = Arrival(), []
            arrival.body = body
            fields = {"host": "localhost", "content-type": "application/json"}
            fields |= {"content-encoding": "gzip"}
            scope: Message = {
                "type": "http",
                "method": "POST",
                "path": "/ops",
                "query_string": b"",
                "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
                ARRIVAL: arrival,
            }
            busy = Event()
            threads = [
                host.pool_of("ingest", is_heavy=True).submit(busy.wait)
                for _ in range(HEAVY_THREADS)
            ]

            async def send(message: Message) -> None:
                sent.append(message)

            task = asyncio.create_task(app(scope, asyncio.Queue().get, send))
            while not host.pool_of("ingest", is_heavy=True)._work_queue.qsize():
                await asyncio.sleep(0)
            arrival.is_gone = is_gone
            busy.set()
            await task
            assert bool(sent) != is_gone
            assert all(each.result() for each in threads)
            return await asyncio.to_thread(host.stores.log.head, FEED)

    assert asyncio.run(post()) == int(not is_gone)


def test_a_message_of_a_stream_is_what_was_compressed(server: Server) -> None:
    """The stream holds the content, not the bytes of gzip."""
    path = "feeds/main/v1/stream/zipped"
    assert post(server, b"", "identity", path).status_code in (400, 404)
    headers = {"authorization": BASIC, "content-type": "application/json"}
    assert httpx.put(server.url + path, headers=headers).status_code == 201
    assert post(server, gzip.compress(b'{"a":1}'), "gzip", path).status_code == 204
    assert httpx.get(
        server.url + path, params={"offset": "-1"}, headers={"authorization": READS}
    ).json() == [{"a": 1}]


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("health", "*/*"),
        ("status", "*/*"),
        ("metrics", "*/*"),
        ("openapi.json", "*/*"),
        ("console/", "*/*"),
        ("console", "*/*"),
        ("changes?since=0", "*/*"),
        ("changes?since=0&block=20", "*/*"),
        ("feeds/main/consumers", "*/*"),
        ("feeds/main/objects", "*/*"),
        ("feeds/main/pages", "*/*"),
        ("relays", "*/*"),
        ("", "application/json"),
        ("nothing", "*/*"),
        ("feeds/other/ops", "text/event-stream"),
        ("ops", "image/png"),
    ],
)
def test_head_is_answered_as_get(server: Server, path: str, accept: str) -> None:
    """The same status and fields, no body; and a list is not waited for."""
    headers = {"accept": accept, "authorization": READS}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
        head, got = client.head(path), client.get(path.replace("&block=20", ""))
    changing = {"date"}
    if path in ("metrics", "status", "feeds/main/pages"):  # with counters, or a time
        changing.add("content-length")
    if "block" in path:
        changing |= {"cache-control", "vary"}
    assert head.status_code == got.status_code
    assert head.content == b""
    assert {k: v for k, v in head.headers.items() if k not in changing} == {
        k: v for k, v in got.headers.items() if k not in changing
    }


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_head_of_a_stream_ends(server: Server, accept: str) -> None:
    """With the fields of the stream, and without counting as a client."""
    for path in ("", "ops", "feeds/main/ops"):
        headers = {"accept": accept, "authorization": READS}
        answer = httpx.head(server.url + path, headers=headers, timeout=PATIENCE_S)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(accept)
        assert answer.headers["last-event-id"]


@pytest.mark.parametrize(
    ("path", "allow"),
    [("cluster", "GET, HEAD, OPTIONS"), ("config", "GET, HEAD, POST, PUT, OPTIONS")],
)
def test_a_wrong_method_is_told_that_head_is_allowed(server: Server, path: str, allow: str) -> None:
    answer = httpx.patch(f"{server.url}{path}", timeout=PATIENCE_S)
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


def test_options_of_the_server(server: Server) -> None:
    """RFC 9110, 9.3.7: `*` is the server as a whole."""
    answer = told(server, "OPTIONS *", "")
    assert answer.startswith("http/1.1 204 ")
    assert "allow: delete, get, head, options, post, put" in answer
    assert "content-length" not in answer


@pytest.mark.parametrize("path", ["app/console", "console"])
def test_a_redirect_stays_below_the_prefix(server: Server, path: str) -> None:
    """The location includes the prefix of the deployment."""
    answer = httpx.get(server.url + path, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/app/console/")
    assert httpx.get(server.url + "app/console", follow_redirects=True).status_code == 200


@pytest.mark.parametrize("path", ["app/ws", "ws"])
def test_a_websocket_is_below_the_prefix(server: Server, path: str) -> None:
    """The clients add `/ws` to the address of the feed."""
    with connect(f"ws://127.0.0.1:{server.port}/{path}") as socket:
        socket.send('{"action":"ping"}')
        assert "reply" in socket.recv(timeout=PATIENCE_S)


def test_the_prefix_alone_is_the_root(server: Server) -> None:
    """This holds with or without a slash."""
    accept = {"accept": "application/json"}
    for path in ("app", "app/"):
        links = httpx.get(server.url + path, headers=accept).json()
        assert links["changes"] == f"{server.url}app/changes"
