"""The answer of the streaming function, passed on as it comes, or cut where it was cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from tidings.twin.lambdas.stream_function import StreamFunction
from tidings.twin.lambdas.workers import Program

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SCOPE = {
    "method": "GET",
    "path": "/ops",
    "raw_path": b"/ops",
    "query_string": b"types=a|b",
    "headers": [(b"accept", b"*/*"), (b"host", b"feed.example")],
}


class Running(StreamFunction):
    """A function whose server is at *place* already."""

    def __init__(self, place: Path) -> None:
        program = Program("stream", place.parent, 60.0, {}, "arn")
        super().__init__(program, cast("BinaryIO", None))
        self._at = place

    async def _start(self) -> None:
        """It runs."""

    def _place(self) -> Path:
        return self._at


async def _ask(parts: Sequence[bytes]) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the request that a server got, and the messages that its answer *parts* became."""
    heard, sent = bytearray(), list[dict[str, Any]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "server"
        server = await asyncio.start_unix_server(serve, place)
        try:
            await Running(place).proxy(SCOPE, receive, send)
        finally:
            server.close()
    return bytes(heard), sent


def ask(*parts: bytes) -> tuple[bytes, list[dict[str, Any]]]:
    return asyncio.run(asyncio.wait_for(_ask(parts), 60))


def test_a_stream_comes_as_it_is_sent() -> None:
    """Without the marks of its chunks; the request is that of the client, byte for byte."""
    heard, (start, *pieces, end) = ask(CHUNKED, b"3\r\nabc\r\n2\r\nde\r\n", b"1\r\nf\r\n0\r\n\r\n")

    assert start["status"] == 200
    assert start["headers"] == [(b"content-type", b"text/event-stream")]
    assert b"".join(each["body"] for each in pieces) == b"abcdef"
    assert all(each["more_body"] for each in pieces)
    assert end == {"type": "http.response.body", "body": b""}
    assert heard.startswith(b"GET /ops?types=a|b HTTP/1.1\r\n")
    assert b"\r\naccept: */*\r\n" in heard.lower()
    assert b"\r\nx-forwarded-host: feed.example\r\n" in heard.lower()
    assert b"user-agent" not in heard.lower()


def test_a_whole_answer() -> None:
    """Body and head may come together."""
    _, (_, piece, end) = ask(HEAD + b"content-length: 2\r\n\r\nok")
    assert (piece["body"], end["body"]) == (b"ok", b"")


@pytest.mark.parametrize("parts", [(), (HEAD,), (b"hello\r\n\r\n",)])
def test_a_server_that_does_not_answer_is_unreachable(parts: tuple[bytes, ...]) -> None:
    """API Gateway says 502."""
    assert ask(*parts)[1][0]["status"] == 502


@pytest.mark.parametrize("parts", [(CHUNKED, b"3\r\nab"), (CHUNKED, b"3\r\nabc\r\n")])
def test_an_answer_that_is_cut_has_no_end(parts: tuple[bytes, ...]) -> None:
    """So that nobody takes the start of an answer for all of it."""
    sent = ask(*parts)[1]
    assert sent[0]["status"] == 200
    assert all(each.get("more_body") for each in sent[1:])
