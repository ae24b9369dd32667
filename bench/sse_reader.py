"""A consumer that costs next to nothing: a raw socket that counts the blocks of a stream."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

_READ_BYTES = 1 << 20
_PATIENCE_S = 60.0


@dataclass(slots=True)
class Heard:
    """*first_s* is how long the first block took, *seconds* how long all of them did."""

    blocks: int = 0
    bytes: int = 0
    first_s: float = 0.0
    seconds: float = 0.0


def count(url: str, cursor: str, blocks: int, *, query: str = "") -> Heard:
    """Read the stream behind *cursor* until *blocks* of it are there."""
    heard, kept = Heard(), b""
    started = time.perf_counter()
    for text in chunks(url, cursor, query):
        found = kept + text
        heard.blocks += found.count(b"\n\n")
        heard.bytes += len(text)
        kept = b"\n" if found.endswith(b"\n") and not found.endswith(b"\n\n") else b""
        heard.first_s = heard.first_s or time.perf_counter() - started
        if heard.blocks >= blocks:
            break
    heard.seconds = time.perf_counter() - started
    return heard


def chunks(url: str, cursor: str, query: str = "") -> Iterator[bytes]:
    """What the chunks of the answer carry."""
    host = urlsplit(url)
    assert host.hostname is not None
    with socket.create_connection((host.hostname, host.port or 80), _PATIENCE_S) as connection:
        connection.sendall(
            f"GET /{query} HTTP/1.1\r\nHost: {host.netloc}\r\nAccept: text/event-stream\r\n"
            f"Last-Event-ID: {cursor}\r\n\r\n".encode()
        )
        buffered = bytearray()
        while b"\r\n\r\n" not in buffered:
            buffered += _more(connection)
        head, _, rest = bytes(buffered).partition(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        yield from _dechunked(connection, bytearray(rest))


def _dechunked(connection: socket.socket, buffered: bytearray) -> Iterator[bytes]:
    while True:
        end = buffered.find(b"\r\n")
        if end < 0:
            buffered += _more(connection)
            continue
        size = int(buffered[:end], 16)
        while len(buffered) < end + 2 + size + 2:
            buffered += _more(connection)
        if not size:
            return
        yield bytes(buffered[end + 2 : end + 2 + size])
        del buffered[: end + 2 + size + 2]


def _more(connection: socket.socket) -> bytes:
    found = connection.recv(_READ_BYTES)
    assert found, "the stream was cut"
    return found
