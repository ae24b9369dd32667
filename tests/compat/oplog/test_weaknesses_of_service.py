"""Cases in which oplog stopped, leaked or waited for ever, and the behaviour here.

The second part of test_weaknesses.py; tests of the process run the deployed app.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from typing import Any

import pytest

from tests.compat.oplog.in_process import Client, accept, refused, run, streams, until_live
from tests.fakes import MemoryLog, MemoryState
from tests.unit.core.following import caught_up, names
from tests.unit.core.scene import NOW, Scene, op
from tidings.core.catchup.sse import Stream
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import START
from tidings.core.model.pages import Pages
from tidings.core.state.rows import Lines
from tidings.http.streams.tail_poller import POLL_S

LEAVING = 40  # as many as leaked in oplog
MANY = 2_000
OLDEST, NEWEST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("begin", [None, "", "0", "1", "now", START.encode(), "f" * 24])
def test_W14_an_empty_feed_is_a_feed(scene: Scene, begin: str | None) -> None:
    """A GET on an empty oplog ended the server. Here it waits, and receives the first operation."""

    async def work() -> Client:
        client = Client(streams(scene), enough=lambda text: '"first"' in text)
        hearing = asyncio.ensure_future(client.get(begin))
        while not client.status:
            await asyncio.sleep(0.01)
        scene.post(op("first", "insert"))
        return await hearing

    client = run(work())
    assert client.status == 200
    assert [event.data["id"] for event in client.events() if event.data] == ["first"]


class AwayState(MemoryState):
    """A store that does not answer while *away*."""

    away = False

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        if self.away:
            raise Unavailable("no answer")
        return super().lines(feed, bucket, after)


class AwayLog(MemoryLog):
    away = False

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        if self.away:
            raise Unavailable("no answer")
        return super().read(feed, after, limit, eventual=eventual)


@pytest.mark.parametrize("begin", ["0", "1", START.encode(), None])
def test_W15_a_store_that_is_away_ends_one_answer_and_no_process(begin: str | None) -> None:
    """A numeric id while the database was away ended oplog and its queue. Here the client is
    answered 503, or its stream ends at a block; the next one is served by the same app.
    """
    log, state = AwayLog(), AwayState()
    scene = Scene(log=log, state=state)
    scene.post(op("x", "insert"))
    scene.project()
    app = streams(scene)

    log.away = state.away = True
    away = run(Client(app).get(begin))
    log.away = state.away = False
    back = run(Client(app, enough=until_live).get("0"))

    assert away.status == 503 or '"x"' not in away.text
    assert [event.name for event in back.events()] == ["reset", "insert", "live"]


def test_W16_no_timestamp_stops_a_stream(scene: Scene) -> None:
    """A time that UTC cannot express was stored by oplog and cut every consumer at it for ever.
    Here it is refused, and the error names the earliest and latest accepted times.
    """
    for poison in ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"):
        error = refused(scene, json.dumps(op("x", timestamp=poison)))
        assert (error.status, error.field) == (400, "timestamp")
    scene.post(op("oldest", timestamp=OLDEST), op("newest", timestamp=NEWEST), op("next"))

    events = caught_up(scene, START.encode())
    assert [json.loads(event.data)["timestamp"] for event in events][:2] == [OLDEST, NEWEST]
    assert len(events) == 3


def _streams_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Stream) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("begin", "query", "stuck"),
    [("0", "", True), ("0", "", False), (None, "types=rare", False)],
    ids=["within a copy", "behind a copy", "idle with a rare filter"],
)
def test_W17_who_leaves_is_forgotten(
    scene: Scene, begin: str | None, query: str, stuck: bool
) -> None:
    """Clients that left in a copy, or waited for what never matched, left threads and cursors in
    oplog for ever. Here nothing is left of them: no task, no stream, no thread of their own.
    """
    for _ in range(3):
        scene.post(*(op(scene.new_id(), "insert") for _ in range(1000)))
    scene.project()

    async def work() -> tuple[int, int]:
        app = streams(scene)
        clients = [Client(app, stuck=stuck) for _ in range(LEAVING)]
        hearing = [asyncio.ensure_future(client.get(begin, query)) for client in clients]
        while not all(client.status and (client.text or query) for client in clients):
            await asyncio.sleep(0.01)
        alive = _streams_alive()
        for client in clients:
            client.left.set()
        await asyncio.gather(*hearing)
        while len(asyncio.all_tasks()) > 1:  # the one that looked for all of them
            await asyncio.sleep(POLL_S)
        # A thread cannot be cancelled: its read-ahead holds its stream until it has been read.
        await asyncio.get_running_loop().shutdown_default_executor()
        return alive, _streams_alive()

    threads = threading.active_count()
    assert run(work()) == (LEAVING, 0)
    assert threading.active_count() - threads < LEAVING / 2


@pytest.mark.parametrize("begin", ["0", "1", str(NOW)])
def test_W18_objects_of_one_millisecond_end(scene: Scene, begin: str) -> None:
    """A thousand of them kept oplog in its first page of rows for ever. Here a copy goes by keys,
    not by times: each is sent once, then `live`.
    """
    for page in range(MANY // 1000):
        scene.post(*(op(f"x{page}-{number}", "insert") for number in range(1000)))
    scene.project()

    told = names(caught_up(scene, begin))
    assert len(told) == len(set(told)) == MANY + 1 + (begin == "0")
    assert told[-1] == "live"


class CountingLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        self.reads += 1
        return super().read(feed, after, limit, eventual=eventual)


def test_W19_streams_that_wait_share_one_reader() -> None:
    """oplog held a cursor and a scan of the whole log for each client. Here fifty that wait read as
    often as one would.
    """
    log = CountingLog()
    scene = Scene(log=log)
    waiting_s, clients = 6 * POLL_S, 50

    async def work() -> int:
        app = streams(scene)
        heard = [Client(app, enough=lambda text: '"end"' in text) for _ in range(clients)]
        hearing = [asyncio.ensure_future(client.get()) for client in heard]
        while not all(client.status for client in heard):
            await asyncio.sleep(0.01)
        await asyncio.sleep(3 * POLL_S)
        before = log.reads
        await asyncio.sleep(waiting_s)
        reads = log.reads - before
        scene.post(op("end"))
        await asyncio.gather(*hearing)
        return reads

    assert 1 <= run(work()) <= 2 * waiting_s / POLL_S


@pytest.mark.parametrize(
    "poison", [op("x" * 513), op("x", parents=["p" * 641]), op("x", data="d" * 2**16)]
)
def test_W20_what_the_store_could_not_take_is_refused(scene: Scene, poison: dict[str, Any]) -> None:
    """A key too long for its database stopped oplog's queue. Here what follows is not held up."""
    assert refused(scene, json.dumps([op("a"), poison])).status in (400, 413)
    accept(scene, json.dumps(op("next")))

    assert names(caught_up(scene, START.encode())) == ["update next"]
