"""Streams that their host ends, as Lambda does, and streams that no server ends."""

from __future__ import annotations

import asyncio
import selectors
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from tests.compat.oplog.eventsource import EventSource
from tests.compat.oplog.in_process import Client, Message, run, streams, until_live
from tests.compat.oplog.oplogc import Decoder, Event, InFlight
from tests.unit.core.scene import Scene, op
from tidings.core import limits
from tidings.core.auth.passwords import hash_password
from tidings.core.catchup.sse import HEARTBEAT
from tidings.core.model.pages import Page
from tidings.http.streams import tail_poller
from tidings.http.streams.sse import EventStreams
from tidings.http.streams.tail_poller import HEARTBEAT_MS

SHORT_MS = 300  # of a stream on a stage
HOUR_S = 3600


class Consumer(Protocol):
    """A client that keeps its own position."""

    last_id: str
    events: list[Event]

    def read(self, stream: str) -> None:
        """Take one whole stream."""


@dataclass
class Oplogc:
    """The strict double of oplogc, which acknowledges everything at once."""

    flight: InFlight = field(default_factory=lambda: InFlight(""))
    events: list[Event] = field(default_factory=list)

    @property
    def last_id(self) -> str:
        return self.flight.last_id

    def read(self, stream: str) -> None:
        decoder = Decoder()
        for line in stream.encode().split(b"\n")[:-1]:
            event = decoder.line(line)
            if event is not None:
                self.events.append(event)
                self.flight.push(event.id)
                self.flight.done(event.id)


async def _broken(app: EventStreams, cursor: str, query: str) -> str:
    """Return the text of a stream that ends before its first operation: in time, or all at once."""
    client = Client(app)
    asked = asyncio.ensure_future(client.get(cursor or None, query))
    while not (client.status and (client.text or cursor)):
        await asyncio.sleep(0.01)
    app.end_all()
    await asked
    return client.text


@pytest.mark.parametrize("kind", [EventSource, Oplogc])
@pytest.mark.parametrize("silent", [1, 3])
@pytest.mark.parametrize("longest_ms", [SHORT_MS, None])
def test_7_4_a_stream_that_ends_before_its_first_event_loses_nothing(
    scene: Scene, kind: type[Consumer], silent: int, longest_ms: int | None
) -> None:
    """Posts between two streams are sent by the next one, to a client without a cursor."""
    scene.post(op("before"))
    consumer = kind()

    async def work() -> None:
        app = streams(scene, longest_ms)
        for _ in range(silent):
            consumer.read(await _broken(app, consumer.last_id, ""))
        scene.post(op("between", "update"))
        client = await Client(app, enough=lambda text: "between" in text).get(consumer.last_id)
        consumer.read(client.text)

    run(work())
    assert [event.name for event in consumer.events] == ["live", "update"]


@pytest.mark.parametrize("longest_ms", [SHORT_MS, None])
@pytest.mark.parametrize("query", ["", "cursors=true"])
def test_7_4_the_first_block_tells_an_event_source_when_to_resume(
    scene: Scene, longest_ms: int | None, query: str
) -> None:
    """P7.4: in half a second, with a cursor that a library takes only from an event."""
    source = EventSource()
    client = run(Client(streams(scene, longest_ms), enough=until_live).get(query=query))
    source.read(client.text)

    assert (source.retry_ms, source.last_id) == (500, client.headers["last-event-id"])
    assert [event.name for event in source.events] == ["live"]


@pytest.mark.parametrize("longest_ms", [SHORT_MS, None])
def test_7_7_a_client_that_asks_begins_with_a_cursor_alone(
    scene: Scene, longest_ms: int | None
) -> None:
    """On every host, if it has one: a browser does not resume from one in the address."""
    source = EventSource()
    at = f"{scene.post(op('a')).id_prefix}000000"
    app = streams(scene, longest_ms)
    client = run(Client(app, enough=lambda text: text != "").get(at, "cursors=true"))
    source.read(client.text)

    assert client.text == f"retry: 500\nid: {at}\n\n"
    assert (source.last_id, source.events) == (at, [])


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop for which an hour takes a second or two."""

    SPEED = 2000.0

    def __init__(self) -> None:
        super().__init__(_FastSelector(self.SPEED))

    def time(self) -> float:
        return super().time() * self.SPEED


class _FastSelector(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            timeout /= self._speed
        selected: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return selected


class Quiet:
    """Implements `News` of a feed on which something happens when *posted* is set."""

    def __init__(self) -> None:
        self.posted = asyncio.Event()

    async def wait(self) -> list[Page]:
        await self.posted.wait()
        self.posted.clear()
        return []

    def look(self) -> None:
        """Do nothing: the feed has no entries from before."""

    def mark_written(self, streams: int) -> None:
        """Do nothing: the test does not measure it."""

    def close(self) -> None:
        """Do nothing: nothing has a reference to it."""


def test_7_4_an_idle_stream_of_a_server_stays_open_for_an_hour(scene: Scene) -> None:
    """After its beginning it is sent oplog's comments and nothing else, and then what comes."""

    async def work() -> tuple[str, str]:
        news = Quiet()
        client = Client(streams(scene, None, lambda feed: news), lambda text: "at-last" in text)
        asked = asyncio.ensure_future(client.get())
        await asyncio.sleep(HOUR_S)
        assert not asked.done()
        began, silence = client.text, client.text.partition("\n\n")[2]
        scene.post(op("at-last"))
        news.posted.set()
        await asked
        return client.text.removeprefix(began), silence

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        found, silence = runner.run(work())
    assert set(silence.splitlines(keepends=True)) == {HEARTBEAT}
    # A slow machine skips some; without any a proxy would end the stream.
    assert HOUR_S * 1000 / HEARTBEAT_MS / 4 < len(silence.splitlines()) <= HOUR_S / 20
    assert found.lstrip(":\n").startswith("id: ")


def test_a_server_that_stops_ends_streams_in_order(scene: Scene) -> None:
    """Their clients see a complete answer, and resume."""

    async def work() -> tuple[EventStreams, Client]:
        app = streams(scene, None)
        client = Client(app)
        asked = asyncio.ensure_future(client.get())
        while not client.status:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        app.end_all()
        await asked
        return app, client

    _, client = run(work())
    assert (client.status, client.is_complete) == (200, True)


def test_streams_that_catch_up_take_turns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop serves others between two pieces, however many streams catch up."""
    monkeypatch.setattr(limits, "PIECE_CHARS", 1)
    cursors = [scene.post(op(f"x{number}")).id_prefix + "000000" for number in range(10)]
    written: list[int] = []
    turn = 0
    app = streams(scene, longest_ms=None)

    class Counting(Client):
        async def _send(self, message: Message) -> None:
            if b"event: " in message.get("body", b""):
                written.append(turn)
            await Client._send(self, message)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def resume() -> None:
        counting = asyncio.ensure_future(count())
        clients = [Counting(app, enough=lambda text: cursors[-1] in text) for _ in range(3)]
        await asyncio.gather(*(each.get(cursors[0]) for each in clients))
        counting.cancel()

    run(resume())
    assert len(written) == len(set(written)) == 3 * len(cursors[1:])


def test_10_6_a_stream_of_a_server_ends_with_what_opened_it(scene: Scene) -> None:
    """Nothing else would end it: it has no time."""

    async def work() -> Client:
        client = Client(streams(scene, None))
        asked = asyncio.ensure_future(client.get())
        while not client.status:
            await asyncio.sleep(0.01)
        scene.configure(read_passwords=(hash_password("a-password", salt=b"s", now_ms=1),))
        await asked
        return client

    client = run(work())
    assert (client.status, client.is_complete) == (200, True)
    assert [event.name for event in client.events()] == ["live"]


def test_7_7_oplogc_with_a_rare_filter_is_sent_what_oplog_sent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `live`, comments while the feed moves, then the block of its event, byte by byte."""
    monkeypatch.setattr(tail_poller, "HEARTBEAT_MS", 20)
    consumer = Oplogc()

    async def work() -> tuple[Client, str]:
        client = Client(streams(scene, None), enough=lambda text: "rare" in text)
        asked = asyncio.ensure_future(client.get(query="types=rare"))
        while client.text.count(HEARTBEAT) < 3:
            scene.post(op("other"))
            await asyncio.sleep(0.05)
        page = scene.post(op("x", "update", type="rare"))
        await asked
        return client, page.id_prefix

    client, prefix = run(work())
    consumer.read(client.text)
    assert client.text.partition("\n\n")[2].lstrip(":\n") == (
        f"id: {prefix}000000\nevent: update\n"
        'data: {"timestamp":"2025-11-13T02:13:20Z","parents":[],"type":"rare","id":"x"}\n\n'
    )
    assert (consumer.last_id, len(consumer.events)) == (f"{prefix}000000", 2)
