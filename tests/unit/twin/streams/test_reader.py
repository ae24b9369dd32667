"""One look at a stream: an answer, a refusal, silence, and a connection that was closed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import MSG_PEEK
from typing import Any

import pytest

from tidings.server.listening import free_port
from tidings.twin.streams.reader import NotRead, Page, StreamReader

RECORD = {"eventID": "1", "dynamodb": {"SequenceNumber": "7"}}


class _Engine(HTTPServer):
    """Answers with *answers* in turn, and notes what it was asked."""

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = iter(answers)
        self.asked: list[Any] = []
        self.connections = 0

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()


class _Handler(BaseHTTPRequestHandler):
    server: _Engine
    protocol_version = "HTTP/1.1"
    timeout = 0.1  # then an idle connection is closed

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers["X-Amz-Target"], asked))
        status, body = next(self.server.answers)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def engine(*answers: tuple[int, bytes]) -> Iterator[tuple[_Engine, StreamReader]]:
    server = _Engine(list(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    reader = StreamReader(f"http://127.0.0.1:{server.server_port}")
    try:
        yield server, reader
    finally:
        reader.close()
        server.shutdown()
        server.server_close()
        thread.join()


def answer(records: list[Any], after: str | None) -> tuple[int, bytes]:
    body = {"Records": records} | ({"NextShardIterator": after} if after else {})
    return 200, json.dumps(body).encode()


def test_records_come_as_they_are_until_the_shard_ends() -> None:
    """Over one connection; where nothing follows, the answer names no iterator."""
    with engine(answer([RECORD], "two"), answer([], None)) as (server, reader):
        pages = [reader.read("one"), reader.read("two")]

    assert pages == [Page([RECORD], "two"), Page([], None)]
    target = "DynamoDBStreams_20120810.GetRecords"
    assert server.asked == [
        (target, {"ShardIterator": name, "Limit": 1000}) for name in ("one", "two")
    ]
    assert server.connections == 1


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    """A batch may take longer than the engine keeps an idle connection: nothing is lost by it."""
    with engine(answer([], "two"), answer([RECORD], "three")) as (server, reader):
        reader.read("one")
        assert reader._connection.sock.recv(1, MSG_PEEK) == b""  # what it reads when it is closed
        found = reader.read("two")

    assert found == Page([RECORD], "three")
    assert server.connections == 2


@pytest.mark.parametrize("wrong", [(400, b'{"__type":"ExpiredIteratorException"}'), (200, b"<?")])
def test_a_refusal_is_told_and_the_next_look_is_a_new_one(wrong: tuple[int, bytes]) -> None:
    """An iterator that has expired, and an answer that is none."""
    with engine(wrong, answer([], "two")) as (_, reader):
        with pytest.raises(NotRead):
            reader.read("old")
        assert reader.read("new") == Page([], "two")


def test_nobody_there_is_told() -> None:
    """The engine is starting, or gone."""
    with pytest.raises(NotRead):
        StreamReader(f"http://127.0.0.1:{free_port()}").read("one")
