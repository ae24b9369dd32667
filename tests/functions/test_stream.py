"""stream: the ASGI app with Lambda response streaming, its clients, and its reads for keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from tests.fakes import MemoryCounters
from tests.functions.cloud import Cloud, event, give_key, restart
from tests.functions.streaming import FROM_THE_FIRST, SSE, Message, read
from tests.functions.test_ingest import post
from tests.iam.scenes import wake
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.aws.telemetry import asgi_edge
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import KeyIssuer, KeyStore, parse
from tidings.core.auth.quotas import RateLimiter
from tidings.core.catchup.sse import RESUME, Chunk, Stream
from tidings.core.counters import Totals
from tidings.core.errors import Unavailable
from tidings.core.version import VERSION
from tidings.http import asgi, settings
from tidings.http.asgi import Send, send_body
from tidings.http.streams import sse
from tidings.http.streams.sse import LAST_MS, ClientCounter


def test_a_stream_sends_blocks_from_the_cursor_on(cloud: Cloud) -> None:
    """Status and headers first, then the log as blocks of three lines."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    status, headers, text = read("/", headers=FROM_THE_FIRST, until='"id":"2"')

    assert status == 200
    assert headers == {
        "server": f"tidings/{VERSION}",
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-store, must-revalidate, no-transform",
        "x-accel-buffering": "no",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "allow, last-event-id, retry-after",
        "last-event-id": "0000000000000000007fffff",
    }
    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    assert blocks[0].pop(0) == f"retry: {limits.STREAM_RESUME_MS}"
    assert [block[1] for block in blocks] == ["event: insert", "event: insert", "event: delete"]
    assert all(
        [line.partition(":")[0] for line in block] == ["id", "event", "data"] for block in blocks
    )


@pytest.mark.parametrize("context", ["{", "[]", '{"deadline":null}', '{"deadline":1e999}'])
def test_an_unknown_deadline_is_passed_over(cloud: Cloud, context: str) -> None:
    """A header with invalid content neither fails a stream nor ends it early."""
    ingest(event("http_post"), None)
    headers = {**FROM_THE_FIRST, "x-amzn-lambda-context": context}
    status, _, text = read("/", headers=headers, until="\n\n")

    assert status == 200 and text.endswith("\n\n")


def test_a_stream_ends_before_the_functions_time(cloud: Cloud) -> None:
    """Between two blocks, with enough time left for a large one."""
    ingest(event("http_post"), None)
    deadline = json.dumps({"deadline": now_ms() + LAST_MS + 1_000})
    headers = {"accept": "*/*", "x-amzn-lambda-context": deadline}
    started = now_ms()
    read("/", headers=headers)

    assert now_ms() - started >= 500


def test_a_stream_lasts_as_long_as_its_stage_says(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7.4: Lambda reports no disconnected reader, so nothing else would end its stream."""
    monkeypatch.setattr(settings, "parse_integer", lambda text, *_: int(text))
    monkeypatch.setenv("TIDINGS_STREAM_SECONDS", "1")
    restart()
    deadline = json.dumps({"deadline": now_ms() + 900_000})
    started = now_ms()
    asked = {"accept": "*/*", "x-amzn-lambda-context": deadline}
    status, _, text = read("/", headers={**asked, "last-event-id": "0000000000000000007fffff"})

    assert (status, text) == (200, "")
    assert now_ms() - started >= 1_000


def test_7_4_a_stream_that_will_end_tells_first_where_it_begins(cloud: Cloud) -> None:
    """A client without a cursor would miss what is posted before it reconnects."""
    ingest(event("http_post"), None)
    deadline = json.dumps({"deadline": now_ms() + LAST_MS + 200})
    _, headers, text = read("/", headers={**SSE, "x-amzn-lambda-context": deadline})

    start = headers["last-event-id"]
    assert text == f"retry: 500\nid: {start}\nevent: live\ndata: {{}}\n\n"


def test_a_reader_who_takes_nothing_is_cut(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a client that reads nothing soon after the stream's time, before Lambda ends it."""
    ingest(event("http_post"), None)
    monkeypatch.setattr(settings, "parse_integer", lambda text, *_: int(text))
    monkeypatch.setattr(sse, "LAST_MS", 500)
    monkeypatch.setenv("TIDINGS_STREAM_SECONDS", "1")
    restart()
    started = now_ms()
    status, _, _ = read("/", headers=FROM_THE_FIRST, stuck_at="")

    assert status == 200
    assert now_ms() - started >= 1_500


def test_a_stream_ends_before_lambda_cuts_it(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any stream ends, between two blocks: a resumed one gets the rest, and nothing again."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    told = dict(FROM_THE_FIRST)
    whole = read("/", headers=told, until='"id":"2"')[2].removeprefix(RESUME)
    monkeypatch.setattr(limits, "PIECE_CHARS", 1)
    monkeypatch.setattr(limits, "STREAM_BYTES_MAX", 1)
    context = {"x-amzn-lambda-context": json.dumps({"deadline": now_ms() + 600_000})}

    texts: list[str] = []
    while "".join(texts) != whole:
        texts.append(read("/", headers={**told, **context})[2])
        assert texts[-1].startswith(RESUME)  # each stream says so
        texts[-1] = texts[-1].removeprefix(RESUME)
        assert whole.startswith("".join(texts)) and texts[-1].endswith("\n\n")
        last = texts[-1].rstrip("\n").rpartition("\n\n")[2]
        told["last-event-id"] = last.partition("\n")[0].removeprefix("id: ")
    assert len(texts) > 1


def test_a_preflight_is_answered_for_the_origins_of_the_setting(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the app itself: a function URL has no gateway for it."""
    monkeypatch.setenv("TIDINGS_CORS_ORIGINS", "https://a.example,https://b.example")
    restart()
    told = {
        origin: read("/ops", headers={"origin": origin}, method="OPTIONS")
        for origin in ("https://b.example", "https://c.example")
    }

    assert [status for status, _, _ in told.values()] == [204, 204]
    listed, other = (headers for _, headers, _ in told.values())
    assert listed["access-control-allow-origin"] == "https://b.example"
    assert listed["access-control-allow-methods"] == "GET, OPTIONS"
    assert {"authorization", "last-event-id"} <= set(
        listed["access-control-allow-headers"].split(", ")
    )
    assert "access-control-allow-origin" not in other
    assert (listed["vary"], other["vary"]) == ("Origin", "Origin")


def test_what_is_counted_is_written_before_the_answer_ends(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the last piece Lambda may stop the process, and nothing else would write it."""
    written: list[str] = []

    async def answer(scope: Message, receive: asgi.Receive, send: asgi.Send) -> None:
        stage().count("PartsBroken", 2)
        await asgi.send_head(send, 200, {})
        await asgi.send_body(send, "more", more=True)
        await asgi.send_body(send, "", more=False)

    async def send(message: Message) -> None:
        lines = capsys.readouterr().out.splitlines()
        written.append("".join(line for line in lines if "_aws" in json.loads(line)))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        await asgi_edge(answer)({"type": "http", "path": "/", "headers": []}, receive, send)

    asyncio.run(ask())
    assert written[:2] == ["", ""]
    assert json.loads(written[2])["PartsBroken"] == [2]


def test_the_deployed_app_writes_what_it_counted(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream of a disconnected reader has ended, too."""
    ingest(event("http_post"), None)
    capsys.readouterr()
    stage().count("PartsBroken", 3)  # as the archive's reader does
    read("/", headers=FROM_THE_FIRST, until="event: insert")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["PartsBroken"] for line in lines if "PartsBroken" in line] == [[3]]


def test_17_7_a_stream_asks_behind_what_it_read(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading may take long: a key that ends in the meantime opens none of it."""
    monkeypatch.setattr(limits, "PROFILE_AGE_MS", 0)
    ingest(event("http_post"), None)
    given = parse(give_key(Role.READ))
    assert given is not None
    issuer = KeyIssuer(
        KeyStore(DynamoDBRecords(clients.dynamodb(), "control")), stage().profiles, now_ms
    )
    step = Stream.next

    def revoked_meanwhile(stream: Stream) -> Chunk:
        issuer.revoke("main", given.id)
        return step(stream)

    monkeypatch.setattr(Stream, "next", revoked_meanwhile)
    shown = {**FROM_THE_FIRST, "authorization": f"Bearer {given.encode()}"}
    assert read("/", headers=shown)[::2] == (200, "")


def test_a_stream_that_ends_is_held_no_more(cloud: Cloud) -> None:
    """By a key with one stream: the next one is accepted at once, two at a time are not."""
    key = give_key(Role.READ, streams=1)
    shown = {**SSE, "authorization": f"Bearer {key}", "last-event-id": "0"}
    for _ in range(2):
        assert read("/", headers=shown, until="live")[0] == 200
    stage().streamer.open("main", "now", given=Credential(key))
    status, headers, _ = read("/", headers=shown, until="live")
    assert (status, headers["retry-after"]) == (429, str(limits.STREAM_HELD_RETRY_S))


class Clock:
    """The time of the meter: it passes while a stream waits, however slow the machine is."""

    now_ms = 1_763_000_000_000


@pytest.fixture
def clock(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set the clock of every meter, because each request to a function may make its own."""
    clock = Clock()
    now_ms = property(lambda meter: lambda: clock.now_ms, lambda meter, given: None)
    monkeypatch.setattr(RateLimiter, "_clock", now_ms, raising=False)
    return clock


@pytest.fixture
def shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The headers of a key of 50 requests a window, each worth 2 bytes of reading."""
    monkeypatch.setattr(limits, "KEY_WINDOW_MS", 200)
    monkeypatch.setattr(limits, "KEY_READ_SIZE", 2)
    return {**SSE, "authorization": f"Bearer {give_key(*Role, rate=5)}"}


def test_a_stream_waits_and_goes_on(
    shown: dict[str, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a window at least, in the same answer, without asking all the time."""
    chunks: list[Chunk] = []
    original = Stream.next

    def kept(stream: Stream) -> Chunk:
        chunks.append(original(stream))
        clock.now_ms += chunks[-1].wait_ms
        return chunks[-1]

    monkeypatch.setattr(Stream, "next", kept)
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    wake("state", monkeypatch)
    status, _, text = read("/", headers=shown, query="lastEventId=0", until="event: live")
    assert status == 200 and "event: live" in text
    waits = [chunk.wait_ms for chunk in chunks if chunk.wait_ms]
    assert 0 < len(waits) < 20


def test_a_list_is_answered_and_those_behind_it_are_refused(shown: dict[str, str]) -> None:
    """By what was read for it: the second one of a second is within the rate."""
    for number in range(20):
        post(str(number))
    status, _, text = read("/changes", headers=shown)
    assert (status, text.count('"data":')) == (200, 20)
    status, headers, _ = read("/changes", headers=shown)
    assert (status, headers["retry-after"]) == (429, "1")


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
    """Reset, an insert and live are three events; heartbeats and marks in data do not count."""
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
