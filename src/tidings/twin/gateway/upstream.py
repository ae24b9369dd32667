"""
One HTTP/1.1 request to a server of our own at a socket of this machine, its answer as it comes.

A general client would look at each piece of a stream several times; here what one read of the
socket brought becomes one piece, whatever chunks it was sent in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httptools

READ_BYTES = 256 * 1024  # at most, of what has come; the reader stops the sender at twice that
HOST = "localhost"  # a socket's path is no name

Headers = Sequence[tuple[bytes, bytes]]


class Broken(Exception):
    """The server ended the connection within its answer, or what it sent is not HTTP."""


@dataclass(slots=True)
class _Answer:
    """What the parser has found so far; it calls the methods."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    has_head: bool = False
    is_complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Exchange:
    """
    Ask with `start`, read with `pieces`, and `close` in any case.

    *status* and *headers* are the answer's, once `start` has returned.
    """

    def __init__(self) -> None:
        self._answer = _Answer()
        self._parser = httptools.HttpResponseParser(self._answer)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self.status = 0

    @property
    def headers(self) -> Headers:
        return self._answer.headers

    async def start(self, place: Path, method: str, target: str, headers: Headers) -> None:
        """
        Send a request without a body to the socket at *place* and wait for the head of the answer.

        Raises:
            OSError, Broken: there is none.
        """
        opened = asyncio.open_unix_connection(place, limit=READ_BYTES)
        self._reader, self._writer = await opened
        lines = [f"{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n".encode("latin-1")]
        lines.append(b"connection: close\r\n")
        lines += [name + b": " + value + b"\r\n" for name, value in headers]
        self._writer.write(b"".join([*lines, b"\r\n"]))
        while not self._answer.has_head:
            await self._read()
        self.status = self._parser.get_status_code()

    async def pieces(self) -> AsyncIterator[bytes]:
        """
        The body.

        Raises:
            OSError, Broken: it is not all of it.
        """
        while True:
            if self._answer.pieces:
                piece = b"".join(self._answer.pieces)
                self._answer.pieces.clear()
                yield piece
            if self._answer.is_complete:
                return
            await self._read()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _read(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if not data:
            raise Broken("the answer was cut")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Broken(str(error)) from error
