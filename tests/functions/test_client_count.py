"""stream: its clients and events are counted, whatever ends a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from tests.fakes import MemoryCounters
from tests.functions.cloud import Cloud, event
from tests.functions.streaming import SSE, read
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.counters import Totals
from tidings.core.errors import Unavailable
from tidings.http.asgi import Send, send_body
from tidings.http.streams import sse
from tidings.http.streams.sse import ClientCounter


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run *test* in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Process:
    """A process with streams that send two events and end when they are released."""

    def __init__(self, counters: MemoryCounters | None = None) -> None:
        self.counters = counters or MemoryCounters()
        self.now_ms = 1_000_000
        self.go = asyncio.Event()
        self.fails = False
        self.clients = ClientCounter(lambda: self.counters, lambda: self.now_ms, "here")

    @property
    def totals(self) -> Totals:
        return self.counters.totals("main", now_ms=self.now_ms)

    def open(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        async with self.clients.counting("main") as counter:
            counter.send(2)
            await self.go.wait()
            if self.fails:
                raise ConnectionError("the client is gone")

    async def settled(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.01)


@in_a_loop
async def test_O64_clients_come_and_go() -> None:
    """Two streams of one process are two clients; afterwards none, and two connections."""
    process = Process()
    streams = [process.open(), process.open()]
    await process.settled(lambda: process.totals.clients == 2)
    process.go.set()
    await asyncio.gather(*streams)
    assert process.totals == Totals(connections=2, sent=4)


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
    process = Process(counters)
    process.go.set()
    await process.open()
    assert process.totals == Totals()
    counters.broken = False
    process.now_ms += limits.COUNT_EVERY_MS
    await process.settled(lambda: process.totals == Totals(connections=1, sent=2))


def totals() -> Totals:
    return stage().stores.counters.totals("main", now_ms=now_ms())


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_the_deployed_app_counts(cloud: Cloud, accept: str) -> None:
    """Reset, an insert and live are three events; heartbeats and marks in data are none."""
    operation = {"event": "insert", "type": "a", "id": "1", "data": {"}\n\nevent: ": "}\n"}}
    ingest(event("http_post", body=json.dumps(operation)), None)
    read("/", headers={"accept": accept, "last-event-id": "0"}, until="live")
    assert totals() == Totals(connections=1, sent=3)


def test_the_cursor_before_the_first_event_counts(cloud: Cloud) -> None:
    """oplog's clients get it as a `live` event."""
    read("/", headers=SSE, until="event: live")
    assert totals() == Totals(connections=1, sent=1)


@pytest.mark.parametrize(
    ("path", "method", "headers"),
    [
        ("/", "OPTIONS", {}),
        ("/", "GET", {**SSE, "last-event-id": "?"}),
        ("/", "GET", {"accept": "image/png"}),
        ("/feeds/none/ops", "GET", SSE),
    ],
)
def test_O64_who_is_refused_does_not_count(
    cloud: Cloud, path: str, method: str, headers: dict[str, str]
) -> None:
    """Nor does a preflight; nothing is written at all."""
    read(path, method=method, headers=headers)
    assert totals() == Totals()


def test_the_last_stream_is_written_before_it_ends(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last byte a function is frozen, and would never write it."""
    seen = list[Totals]()

    async def received(send: Send, text: str, *, more: bool) -> int:
        if not more:
            seen.append(totals())
        return await send_body(send, text, more=more)

    monkeypatch.setattr(sse, "send_body", received)
    deadline = json.dumps({"deadline": now_ms() + sse.LAST_MS + 200})
    read("/", headers={**SSE, "x-amzn-lambda-context": deadline})
    assert seen == [Totals(connections=1, sent=1)]
