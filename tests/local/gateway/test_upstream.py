"""The way to a server of our own: its answer as it comes, or an error that says it was cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tidings.twin.gateway.upstream import Broken, Exchange

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def _ask(parts: Sequence[bytes]) -> tuple[bytes, int, list[bytes]]:
    """What a server heard that says *parts* one after the other; status and pieces."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    folder = tempfile.TemporaryDirectory()
    place = Path(folder.name) / "server"
    server = await asyncio.start_unix_server(serve, place)
    exchange = Exchange()
    try:
        await exchange.start(place, "GET", "/ops?types=a", [(b"accept", b"*/*")])
        pieces = [piece async for piece in exchange.pieces()]
    finally:
        exchange.close()
        server.close()
        folder.cleanup()
    return bytes(heard), exchange.status, pieces


def ask(*parts: bytes) -> tuple[bytes, int, list[bytes]]:
    return asyncio.run(asyncio.wait_for(_ask(parts), 60))


def test_a_stream_comes_as_it_is_sent() -> None:
    """One piece a read, without the marks of its chunks."""
    heard, status, pieces = ask(CHUNKED, b"3\r\nabc\r\n2\r\nde\r\n", b"1\r\nf\r\n0\r\n\r\n")

    assert (status, pieces) == (200, [b"abcde", b"f"])
    assert heard.startswith(b"GET /ops?types=a HTTP/1.1\r\nhost: localhost\r\n")
    assert b"\r\naccept: */*\r\n" in heard


def test_a_whole_answer() -> None:
    """Body and head may come together."""
    assert ask(HEAD + b"content-length: 2\r\n\r\nok")[2] == [b"ok"]


@pytest.mark.parametrize(
    "parts", [(), (HEAD,), (CHUNKED, b"3\r\nab"), (CHUNKED, b"3\r\nabc\r\n"), (b"hello\r\n\r\n",)]
)
def test_what_is_cut_is_an_error(parts: tuple[bytes, ...]) -> None:
    """So that nobody takes the start of an answer for all of it."""
    with pytest.raises(Broken):
        ask(*parts)
