"""
Server-Sent Events: an incremental parser, and one connection over it.

The parser is fed bytes as they arrive, cut anywhere; lines end with LF, CRLF or CR.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator, Sequence

import httpx

from .errors import Lost, WrongUrl
from .events import Event, Moved, from_text
from .refusals import raise_for_status

CONNECT_S = 10.0
SILENCE_S = 60.0  # a comment comes at least every 25 s (PROTOCOL 7.3); two missing: it is dead
NOW = "now"
LINE_CHARS_MAX = 1024 * 1024  # an operation is at most 64 KB; a longer line is no feed


class Parser:
    """Bytes to events. A block without data but with an id only moves the cursor."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._started = False
        self._last_id = ""
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event | Moved]:
        """
        The events that *chunk* completes.

        Raises:
            Lost: what arrives cannot come from a feed.
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
        if text.endswith("\r"):  # the LF that belongs to it may come with the next chunk
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


def listen(
    url: str, cursor: str, *, types: Sequence[str], parents: Sequence[str]
) -> Generator[Event | Moved, None, None]:
    """
    One connection to *url* from *cursor* on, until it ends.

    Raises:
        Refused: the server will not answer otherwise.
        Lost: the connection failed, ended or fell silent.
        WrongUrl: httpx cannot use *url*.
    """
    filters = {"types": types, "parents": parents}
    params = {name: ",".join(values) for name, values in filters.items() if values}
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
    if cursor:
        headers["Last-Event-ID"] = cursor
    timeout = httpx.Timeout(CONNECT_S, read=SILENCE_S)
    try:
        with httpx.stream("GET", url, params=params, headers=headers, timeout=timeout) as answer:
            raise_for_status(answer)
            if cursor in ("", NOW) and (started := answer.headers.get("last-event-id")):
                yield Moved(started)  # cut before its first event, it resumes from here
            parser = Parser()
            for chunk in answer.iter_bytes():
                yield from parser.feed(chunk)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except httpx.ReadTimeout:
        raise Lost(f"nothing was heard for {SILENCE_S:.0f} s") from None
    except httpx.HTTPError as error:
        raise Lost(str(error) or type(error).__name__) from None
    raise Lost("the server ended the stream")
