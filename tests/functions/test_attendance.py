"""stream: its clients and events are counted, whatever ends a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from tests.fakes import MemoryCounters
from tests.functions.cloud import Cloud, event
from tests.functions.streaming import SSE, read
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.counters import Totals
from tidings.core.errors import Unavailable
from tidings.http.asgi import Message, Receive, Send
from tidings.http.streams.client_count import ClientCounter

BLOCKS = b'id: 1\nevent: reset\ndata: {}\n\nid: 2\nevent: insert\ndata: {"id":"a\\n\\n"}\n\n'


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run *test* in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Process:
    """An app that answers with *status* and sends events; it ends when it is released."""

    def __init__(self, status: int = 200, counters: MemoryCounters | None = None) -> None:
        self.status, self.counters = status, counters or MemoryCounters()
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies = (b"", BLOCKS, b":\n")
        self.now_ms = 1_000_000
        self.go = asyncio.Event()
        self.fails = False
        self.sent: list[Message] = []
        self.client_counter = ClientCounter(
            self._answer, lambda: self.counters, lambda: self.now_ms, "here"
        )

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(head)
        for body in self.bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await self.go.wait()
        if self.fails:
            raise ConnectionError("the client is gone")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def totals(self) -> Totals:
        return self.counters.totals("main", now_ms=0)

    def open(self, path: str = "/") -> asyncio.Future[None]:
        """Open a client that reads."""

        async def receive() -> Message:
            raise AssertionError("not asked here")

        async def send(message: Message) -> None:
            self.sent.append(message)
            self.received(message)

        answering = self.client_counter({"type": "http", "path": path}, receive, send)
        return asyncio.ensure_future(answering)

    def received(self, message: Message) -> None:
        """Called when a message has reached the client."""

    async def settled(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.01)


@in_a_loop
async def test_O64_clients_come_and_go() -> None:
    """Two streams of one process are two clients; afterwards none, and two connections."""
    process = Process()
    streams = [process.open(), process.open("/feeds/main/ops")]
    await process.settled(lambda: process.totals.clients == 2)
    process.go.set()
    await asyncio.gather(*streams)
    assert process.totals == Totals(connections=2, sent=4)


@in_a_loop
async def test_the_last_stream_is_written_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last byte a function is frozen, and would never write it."""
    process, seen = Process(), list[Totals]()

    def received(message: Message) -> None:
        if message.get("more_body") is False:
            seen.append(process.totals)

    monkeypatch.setattr(process, "received", received)
    process.go.set()
    await process.open()
    assert seen == [Totals(connections=1, sent=2)]


@in_a_loop
async def test_lines_count_as_blocks_do() -> None:
    """One event per line, in any format and with any data; an empty line does not count."""
    process = Process()
    process.headers = [(b"content-type", b"application/x-ndjson; charset=utf-8")]
    process.bodies = (b"", b'{"id":"1","event":"reset"}\n{"data":"}\\n\\nevent: "}\n', b"\n")
    process.go.set()
    await process.open()
    assert process.totals == Totals(connections=1, sent=2)


@pytest.mark.parametrize("status", [204, 400, 401, 406, 503])
@in_a_loop
async def test_O64_who_is_refused_does_not_count(status: int) -> None:
    """Nor does a preflight; nothing is written at all."""
    process = Process(status)
    process.go.set()
    await process.open()
    assert process.totals == Totals()


@in_a_loop
async def test_a_stream_that_breaks_has_left_too() -> None:
    """However it ended."""
    process = Process()
    stream = process.open()
    await process.settled(lambda: process.totals.clients == 1)
    process.fails = True
    process.go.set()
    with pytest.raises(ConnectionError):
        await stream
    assert process.totals == Totals(connections=1, sent=2)


@in_a_loop
async def test_a_process_that_is_killed_is_forgotten() -> None:
    """The number of its clients holds for a while and is not written again."""
    process = Process()
    stream = process.open()
    await process.settled(lambda: process.totals.clients == 1)
    stream.cancel()
    until = process.now_ms + limits.PRESENCE_MS
    assert process.counters.totals("main", now_ms=until - 1).clients == 1
    assert process.counters.totals("main", now_ms=until).clients == 0


class Failing(MemoryCounters):
    """Does not answer while it is *broken*."""

    broken = True

    def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
        if self.broken:
            raise Unavailable("not now")
        super().attend(feed, place, clients, until_ms=until_ms)


@in_a_loop
async def test_what_could_not_be_written_is_written_later() -> None:
    """A store that does not answer delays the count and disturbs no stream."""
    counters = Failing()
    process = Process(counters=counters)
    process.go.set()
    await process.open()
    assert process.sent[-1]["more_body"] is False
    assert process.totals == Totals()
    counters.broken = False
    process.now_ms += limits.COUNT_EVERY_MS
    await process.settled(lambda: process.totals == Totals(connections=1, sent=2))


def test_the_deployed_app_counts(cloud: Cloud) -> None:
    """Reset, an insert and live are three events; the heartbeat's like does not count."""
    ingest(event("http_post"), None)
    read("/", headers={**SSE, "last-event-id": "0"}, until="event: live")
    read("/", headers={}, until="never")

    assert stage().stores.counters.totals("main", now_ms=0) == Totals(connections=1, sent=3)
