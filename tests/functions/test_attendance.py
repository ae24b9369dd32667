"""stream: its clients and events are counted, whatever ends a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tidings.core import limits
from tidings.core.counters import Totals
from tidings.core.errors import Unavailable
from tidings.web.asgi import Message, Receive, Send
from tidings.web.client_count import Attendance

from functions.ingest.handler import handle as ingest
from tests.fakes import MemoryCounters
from tests.functions.cloud import Cloud, event
from tests.functions.test_stream import get

BLOCKS = b'id: 1\nevent: reset\ndata: {}\n\nid: 2\nevent: insert\ndata: {"id":"a\\n\\n"}\n\n'


def totals(tallies: MemoryCounters, feed: str = "main") -> Totals:
    return tallies.totals(feed, now_ms=0)


class Streams:
    """An app that answers with *status* and sends *bodies*; it ends when it is let go."""

    def __init__(self, status: int = 200, bodies: tuple[bytes, ...] = (b"", BLOCKS, b":\n")):
        self.status, self.bodies = status, bodies
        self.go = asyncio.Event()
        self.fails = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        for body in self.bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await self.go.wait()
        if self.fails:
            raise ConnectionError("the client is gone")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


async def settled(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


def visit(attendance: Attendance, path: str = "/", sent: list[Message] | None = None) -> Any:
    async def receive() -> Message:
        raise AssertionError("not asked here")

    async def send(message: Message) -> None:
        if sent is not None:
            sent.append(message)

    return asyncio.ensure_future(attendance({"type": "http", "path": path}, receive, send))


def test_O64_clients_come_and_go(cloud: Cloud) -> None:
    """Two streams of one process are two clients; afterwards none, and two connections."""

    async def scene() -> None:
        tallies, streams, clock = MemoryCounters(), Streams(), Clock()
        attendance = Attendance(streams, lambda: tallies, clock, "here")
        visits = [visit(attendance), visit(attendance, "/feeds/main/ops")]
        await settled(lambda: totals(tallies).clients == 2)
        streams.go.set()
        await asyncio.gather(*visits)
        assert totals(tallies) == Totals(connections=2, sent=4)

    asyncio.run(scene())


def test_the_last_stream_is_written_before_it_ends(cloud: Cloud) -> None:
    """Behind its last byte a function is frozen, and would never write it."""

    async def scene() -> None:
        tallies, streams = MemoryCounters(), Streams()
        attendance = Attendance(streams, lambda: tallies, Clock(), "here")
        seen: list[Totals] = []

        async def send(message: Message) -> None:
            if message.get("more_body") is False:
                seen.append(totals(tallies))

        streams.go.set()
        await attendance({"type": "http", "path": "/"}, lambda: asyncio.sleep(0, {}), send)
        assert seen == [Totals(connections=1, sent=2)]

    asyncio.run(scene())


@pytest.mark.parametrize("status", [204, 400, 401, 406, 503])
def test_O64_who_is_refused_does_not_count(cloud: Cloud, status: int) -> None:
    """Nor does a preflight; nothing is written at all."""

    async def scene() -> None:
        tallies, streams = MemoryCounters(), Streams(status)
        streams.go.set()
        await visit(Attendance(streams, lambda: tallies, Clock(), "here"))
        assert totals(tallies) == Totals()

    asyncio.run(scene())


def test_a_stream_that_breaks_has_left_too(cloud: Cloud) -> None:
    """However it ended."""

    async def scene() -> None:
        tallies, streams = MemoryCounters(), Streams()
        attendance = Attendance(streams, lambda: tallies, Clock(), "here")
        running = visit(attendance)
        await settled(lambda: totals(tallies).clients == 1)
        streams.fails = True
        streams.go.set()
        with pytest.raises(ConnectionError):
            await running
        assert totals(tallies) == Totals(connections=1, sent=2)

    asyncio.run(scene())


def test_a_process_that_is_killed_is_forgotten(cloud: Cloud) -> None:
    """What it said of its clients holds for a while and is not said again."""

    async def scene() -> None:
        tallies, clock = MemoryCounters(), Clock()
        running = visit(Attendance(Streams(), lambda: tallies, clock, "here"))
        await settled(lambda: totals(tallies).clients == 1)
        running.cancel()
        until = clock.now_ms + limits.PRESENCE_MS
        assert tallies.totals("main", now_ms=until - 1).clients == 1
        assert tallies.totals("main", now_ms=until).clients == 0

    asyncio.run(scene())


def test_what_could_not_be_written_is_written_later(cloud: Cloud) -> None:
    """A store that does not answer delays the count and disturbs no stream."""

    class Weather(MemoryCounters):
        bad = True

        def attend(self, feed: str, place: str, clients: int, *, until_ms: int) -> None:
            if self.bad:
                raise Unavailable("not now")
            super().attend(feed, place, clients, until_ms=until_ms)

    async def scene() -> None:
        tallies, streams, clock = Weather(), Streams(), Clock()
        sent: list[Message] = []
        running = visit(Attendance(streams, lambda: tallies, clock, "here"), sent=sent)
        streams.go.set()
        await running
        assert sent[-1]["more_body"] is False
        assert totals(tallies) == Totals()
        tallies.bad = False
        clock.now_ms += limits.COUNT_EVERY_MS
        await settled(lambda: totals(tallies) == Totals(connections=1, sent=2))

    asyncio.run(scene())


def test_the_deployed_app_counts(cloud: Cloud) -> None:
    """Reset, an insert and live are three events; the heartbeat's like is none."""
    from tidings.aws.wiring import adapters

    ingest(event("http_post"), None)
    headers = {"accept": "text/event-stream", "last-event-id": "0"}
    asyncio.run(get("/", headers=headers, until="event: live"))
    asyncio.run(get("/", headers={}, until="never"))

    assert adapters.tallies().totals("main", now_ms=0) == Totals(connections=1, sent=3)
