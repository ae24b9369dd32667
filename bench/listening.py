"""
The process that `bench.many_clients` measures: a thousand clients of each transport.

They are as plain as they can be, because they share the machine with what they listen to: each
counts events, notes when they came, and keeps a checksum of them, so that a lost, repeated or
moved event shows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

_AT_ONCE = 20  # clients that connect side by side
_PATIENCE_S = 120.0
_CHECK_EVERY_S = 0.1
_SUBSCRIBE = b'{"action":"subscribe"}'
_EVENTS_AT = len('{"events":[')


@dataclass(slots=True)
class Ears:
    """What one client heard; *times* has for each read when it came and how many there were."""

    ready: asyncio.Future[None]
    events: int = 0
    checksum: int = 0
    times: list[tuple[float, int]] = field(default_factory=list)

    def hear(self, text: bytes, events: int) -> None:
        self.checksum = zlib.crc32(text, self.checksum)
        self.events += events
        self.times.append((time.perf_counter(), self.events))

    def forget(self) -> None:
        """Begin to count."""
        self.events = self.checksum = 0
        self.times.clear()

    def lost(self) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("refused"))


class EventStream(asyncio.Protocol):
    """A client of `GET /`."""

    def __init__(self, host: str, ears: Ears) -> None:
        self._host, self._ears, self._buffered = host, ears, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(
            f"GET / HTTP/1.1\r\nHost: {self._host}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._buffered += data
        if not self._ears.ready.done():
            head, end, rest = bytes(self._buffered).partition(b"\r\n\r\n")
            if not end:
                return
            assert b" 200 " in head.partition(b"\r\n")[0], head
            self._ears.ready.set_result(None)
            self._buffered = bytearray(rest)
        while (piece := _chunk(self._buffered)) is not None:
            if piece != b":\n":
                self._ears.hear(piece, piece.count(b"\nevent: "))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ears.lost()


def _chunk(buffered: bytearray) -> bytes | None:
    """Take the first chunk if all of it is there."""
    end = buffered.find(b"\r\n")
    size = int(buffered[:end], 16) if end > 0 else -1
    if size < 0 or len(buffered) < end + 2 + size + 2:
        return None
    found = bytes(buffered[end + 2 : end + 2 + size])
    del buffered[: end + 2 + size + 2]
    return found


class Socket(asyncio.Protocol):
    """A client of the WebSocket."""

    def __init__(self, url: str, ears: Ears) -> None:
        self._ears, self._protocol = ears, ClientProtocol(parse_uri(url))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._protocol.send_request(self._protocol.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._protocol.send_text(_SUBSCRIBE)
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._hear(bytes(event.data))
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ears.lost()

    def _hear(self, text: bytes) -> None:
        if not text.startswith(b'{"events":['):
            assert b'"subscribed"' in text, text
            self._ears.ready.set_result(None)
            return
        events = text[_EVENTS_AT : text.rindex(b"]")]
        if events:  # how they are spread over messages may differ
            self._ears.hear(b"," + events, events.count(b'{"id":"'))

    def _flush(self) -> None:
        self._transport.write(b"".join(self._protocol.data_to_send()))


async def _connect(url: str, count: int, make: Any) -> list[Ears]:
    host = urlsplit(url)
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> Ears:
        async with gate:
            ears = Ears(loop.create_future())
            await loop.create_connection(
                lambda: make(url, ears), host.hostname or "", host.port or 80
            )
            await asyncio.wait_for(ears.ready, _PATIENCE_S)
            return ears

    return await asyncio.gather(*(one() for _ in range(count)))


async def _listen(url: str, ws_url: str, count: int) -> dict[str, Any]:
    streams = await _connect(url, count, lambda url, ears: EventStream(urlsplit(url).netloc, ears))
    sockets = await _connect(ws_url, count, Socket)
    _say("connected")
    await _heard([*streams, *sockets], 1)  # all have been taken up
    for each in (*streams, *sockets):
        each.forget()
    _say("listening")
    posted: list[tuple[float, int]] = json.loads(await asyncio.to_thread(sys.stdin.readline))
    await _heard([*streams, *sockets], posted[-1][1])
    return {"sse": _summary(streams, posted), "ws": _summary(sockets, posted)}


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def _heard(clients: Sequence[Ears], events: int) -> None:
    """Wait until all have heard as many, or patience ends."""
    until = time.perf_counter() + _PATIENCE_S
    while time.perf_counter() < until and any(each.events < events for each in clients):
        await asyncio.sleep(_CHECK_EVERY_S)


def _summary(clients: Sequence[Ears], posted: Sequence[tuple[float, int]]) -> dict[str, Any]:
    """How many have everything, in the order that most have it in, and how late events came."""
    total = posted[-1][1]
    late: Counter[int] = Counter()
    for client in clients:
        late += _lateness(client, posted)
    whole = Counter(client.checksum for client in clients if client.events == total)
    return {"complete": max(whole.values(), default=0), "late_ms": sorted(late.items())}


def _lateness(client: Ears, posted: Sequence[tuple[float, int]]) -> Counter[int]:
    """Events by milliseconds from the POST they came by."""
    late: Counter[int] = Counter()
    done, at = 0, 0
    for came, events in client.times:
        while done < min(events, posted[-1][1]):
            sent, upto = posted[at]
            told = min(events, upto)
            late[_coarse((came - sent) * 1000)] += told - done
            done = told
            at += done == upto
    return late


def _coarse(ms: float) -> int:
    """Tenths of a second are enough from a second on, and keep the report short."""
    return round(ms) if ms < 1_000 else int(round(ms, -2))


def main(url: str, ws_url: str, count: int) -> None:
    sys.stdout.write(json.dumps(uvloop.run(_listen(url, ws_url, count))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
