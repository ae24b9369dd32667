"""Server-Sent Events: an incremental parser, and two functions that read events of a connection.

`listen` blocks, and `listen_async` is for asyncio.

The parser accepts chunks of any size; lines end with LF, CRLF or CR.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx

from tidings.client.address import Subscription
from tidings.client.errors import Ended, Lost
from tidings.client.events import LIVE, Event, Moved, from_text
from tidings.client.feed_api import CONNECT_S, basic, connecting, translate_errors
from tidings.client.retries import raise_for_status
from tidings.core.model.cursors import NOW
from tidings.core.model.filters import as_text

# A server sends a comment at least every 25 s (PROTOCOL 7.3), so a connection is dead if two
# comments are missing.
SILENCE_S = 60.0
TIMEOUT = httpx.Timeout(CONNECT_S, read=SILENCE_S)
LINE_CHARS_MAX = 1024 * 1024  # a feed never sends a longer line; an operation has at most 64 KB


class Parser:
    """A parser of bytes into events; a block with an id and without data only moves the cursor."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._started = False
        self._last_id = ""
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event | Moved]:
        """Yield the events that *chunk* completes.

        Raises:
            Lost: the bytes cannot come from a feed.
        """
        for line in self._lines(self._decode(chunk)):
            if line:
                self._field(line)
            else:
                yield from self._block()

    def _lines(self, text: str) -> list[str]:
        if text and not self._started:
            self._started = True
            text = text.removeprefix("\ufeff")
        text = self._rest + text
        held = ""
        if text.endswith("\r"):  # the LF of a CRLF may arrive with the next chunk
            text, held = text[:-1], "\r"
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + held
        if len(self._rest) > LINE_CHARS_MAX:
            raise Lost("a line of the stream does not end")
        return lines

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value

    def _block(self) -> Iterator[Event | Moved]:
        event_id, name, data = self._id, self._name, self._data
        self._id, self._name, self._data = None, "", []
        if event_id is not None:
            self._last_id = event_id
        if data:
            yield from_text(self._last_id, name or "message", "\n".join(data))
        elif event_id:
            yield Moved(event_id)


class StreamRequest:
    """The request of one connection to *url* and the parser of its answer, without I/O."""

    def __init__(self, url: str, cursor: str, wanted: Subscription) -> None:
        self._url, self._cursor, self._wanted = url, cursor, wanted
        self._parser = Parser()
        self._begins_at_end = cursor in ("", NOW)

    def request(self) -> dict[str, Any]:
        """Return the arguments of httpx's `stream`."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        headers |= basic(self._wanted.password)
        if self._cursor:
            headers["Last-Event-ID"] = self._cursor
        parameters = {name: as_text(values) for name, values in self._wanted.lists().items()}
        parameters["cursors"] = "true"  # older servers ignore this parameter
        parameters |= dict.fromkeys(self._wanted.switches(), "true")
        sent = {"headers": headers, "params": parameters, "timeout": TIMEOUT}
        return {"method": "GET", "url": self._url, **sent}

    def failures(self) -> AbstractContextManager[None]:
        """Translate errors of httpx to errors of the client."""
        return translate_errors(self._url, silence=f"nothing was received for {SILENCE_S:.0f} s")

    def opened(self, answer: httpx.Response) -> Iterator[Moved]:
        """Yield the cursor at which a stream that was requested with `now` begins.

        Raises:
            Refused, Lost: the answer is not a stream.
        """
        raise_for_status(answer)
        started = answer.headers.get("last-event-id")
        if self._begins_at_end and started:
            yield Moved(started)

    def feed(self, chunk: bytes) -> Iterator[Event | Moved]:
        """Yield the items that *chunk* completes; see `Parser`.

        The `live` with which a stream from the end of the log begins is only a position, so that
        both transports yield the same events.
        """
        for item in self._parser.feed(chunk):
            is_start = self._begins_at_end and isinstance(item, Event) and item.name == LIVE
            self._begins_at_end = False
            yield Moved(item.id) if is_start and isinstance(item, Event) else item


def listen(url: str, wanted: Subscription, cursor: str) -> Generator[Event | Moved, None, None]:
    """Yield the items of one connection to *url* from *cursor* on, until the connection ends.

    Raises:
        Refused: the server gave a final answer.
        Ended: the server ended the stream as planned.
        Lost: the connection failed or was silent for too long.
        WrongUrl: httpx cannot use *url*.
    """
    connection = StreamRequest(url, cursor, wanted)
    with connection.failures(), httpx.stream(**connection.request(), **connecting(url)) as answer:
        yield from connection.opened(answer)
        for chunk in answer.iter_bytes():
            yield from connection.feed(chunk)
    raise Ended


async def listen_async(
    url: str, wanted: Subscription, cursor: str
) -> AsyncGenerator[Event | Moved, None]:
    """Yield the items of one connection, like `listen`, without blocking."""
    connection = StreamRequest(url, cursor, wanted)
    with connection.failures():
        async with (
            httpx.AsyncClient(**connecting(url)) as client,
            client.stream(**connection.request()) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                await answer.aread()  # because the body contains the reason for the error
            for moved in connection.opened(answer):
                yield moved
            async for chunk in answer.aiter_bytes():
                for item in connection.feed(chunk):
                    yield item
    raise Ended
