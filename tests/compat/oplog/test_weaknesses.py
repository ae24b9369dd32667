"""Errors of oplog, each by its number, and the behaviour here."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.compat.oplog.in_process import ORIGIN, Client, accept, refused, run, streams, until_live
from tests.fakes import MemoryLog, MemoryState
from tests.functions.cloud import Cloud
from tests.functions.conftest import cloud as cloud
from tests.unit.core.following import caught_up, names, trimmed
from tests.unit.core.scene import FEED, NOW, TOMBSTONE_MS, Scene, line, op
from tidings.aws import clients
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.catchup.sse import Stream
from tidings.core.errors import Rejected, Unavailable
from tidings.core.model import cursors
from tidings.core.model.cursors import START
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.pages import Page, Pages
from tidings.core.state.rows import Lines
from tidings.http.answers import refusal
from tidings.http.streams.tail_poller import POLL_S

OLD_ID = f"{NOW // 1000:08x}f095528dd03c863c"  # as oplog's database made them
RACES = 200
KILLS = 5


def copy_of(events: list[Event], into: dict[str, str] | None = None) -> dict[str, str]:
    """Return the copy of a consumer that applies *events* to its previous copy."""
    held = {} if into is None else dict(into)
    for event in events:
        if event.name == "reset":
            held.clear()
        elif event.data:
            name = json.loads(event.data)["id"]
            held[name] = event.data
            if event.name == "delete":
                del held[name]
    return held


def test_W01_the_last_second_is_in_a_full_replication(scene: Scene) -> None:
    """oplog left out what was written in the second of the newest operation, that one always. Here
    a copy is bounded by no clock: rows, then the log from the position of the state.
    """
    scene.post(op("alone", "insert"))
    scene.project()
    assert names(caught_up(scene, "0")) == ["reset", "insert alone", "live"]

    scene.post(op("newer", "insert"))
    assert names(caught_up(scene, "0")) == ["reset", "insert alone", "insert newer", "live"]


@pytest.mark.parametrize("begin", ["0", "1", OLD_ID])
def test_W02_a_cut_copy_keeps_its_deletions(begin: str) -> None:
    """oplog's ids did not show a fallback, and a resumed copy sent no deletions at all. Here the id
    of a row contains the request, and later deletions are in the log after the copy.
    """
    scene = Scene()
    scene.post(*(op(f"x{number}", "insert") for number in range(30)))
    scene.now_ms += 1000
    scene.post(op("x3", "delete"))
    scene.project()
    before = caught_up(scene, begin)
    scene.post(*(op(f"x{number}", "delete") for number in range(10, 20)))
    scene.project()

    held_before = {f"x{number}": "" for number in range(30)} if begin == OLD_ID else {}
    for told in range(1, len(before) + 1):
        held = copy_of(before[:told], held_before)
        held = copy_of(caught_up(scene, before[told - 1].id), held)
        assert held.keys() == {f"x{n}" for n in range(30) if n != 3 and not 10 <= n < 20}


def test_W03_a_slow_consumer_is_never_led_past_a_gap(scene: Scene) -> None:
    """oplog's capped collection overtook slow readers, and the open stream continued after the gap.
    Here a stream without its pages gets the latest of each object since, deletions too.
    """
    page = scene.post(*(op(f"x{number}", "insert") for number in range(4)))
    stream = scene.streamer.open(FEED, page.end.encode())
    for number in range(1, 6):
        scene.now_ms += 1000
        scene.post(op("x0", "update", data=number), op(f"x{number % 3 + 1}", "delete"))
    scene.project()
    trimmed(scene, 6)

    text, at_frontier = "", False
    while not at_frontier:
        chunk = stream.next()
        text, at_frontier = text + chunk.text, chunk.at_frontier
    assert '"data":5' in text and '"data":4' not in text
    assert text.count("event: delete\n") == 3
    assert text.endswith("event: live\ndata: {}\n\n")


def test_W04_what_commits_late_is_not_skipped(scene: Scene) -> None:
    """oplog's ids came from several clocks: an operation that was stored after one with a higher id
    was never sent to a reader that resumed there. Here readers wait before a missing number.
    """
    scene.post(op("first"))
    late = scene.log.take(FEED)
    scene.post(op("third"))
    waiting = caught_up(scene, START.encode())
    assert names(waiting) == ["update first"]

    scene.log.put(FEED, Page(late, line("second"), "late", NOW))
    assert names(caught_up(scene, waiting[-1].id)) == ["update second", "update third"]


class MovesOn(MemoryState):
    """Calls *meanwhile* once, after the last bucket of a copy was read."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        found = super().lines(feed, bucket, after)
        if bucket == limits.BUCKETS - 1:
            self.meanwhile()
        return found


def test_W05_what_the_state_has_not_seen_comes_from_the_log() -> None:
    """oplog read an old row and then began after the operation that changed it. Here the log
    continues at the position of the state *before* the first row was read.
    """
    state = MovesOn()
    scene = Scene(state=state)
    scene.post(op("x", "insert"))
    scene.project()
    scene.post(op("x", "update", data="in the log, not in the state"))
    state.meanwhile = lambda: (scene.post(op("y", "insert")), scene.project())

    copied = copy_of(caught_up(scene, "0"))
    assert json.loads(copied["x"])["data"] == "in the log, not in the state"
    assert copied.keys() == {"x", "y"}


def test_W06_the_state_agrees_with_the_log_whoever_raced() -> None:
    """oplog wrote log and state apart: of 1,500 objects inserted and deleted at the same time, 187
    stayed in the wrong state. Here the state is made from the log, in its order, by one holder.
    """
    scene = Scene()

    def race(number: int) -> None:
        event = ("insert", "delete")[number % 2]
        accept(scene, json.dumps(op(f"x{number // 2}", event)))
        scene.follower.run(FEED, scene.projector)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(race, range(2 * RACES)))
    scene.project()

    fold: dict[str, str] = {}
    for page in scene.log.read(FEED, 0):
        fold |= {f"video/{json.loads(each)['id']}": each for each in page.lines}
    assert len(fold) == RACES
    assert scene.rows() == fold


def test_W07_what_is_posted_in_bulk_is_replicated_as_it_was_posted(scene: Scene) -> None:
    """oplog's bulk import wrote an event that no replication sent, mixed up parents and lost the
    last lines. Here bulk requests are handled like all others, and no other event exists.
    """
    numbers = range(limits.REQUEST_OPERATIONS_MAX)
    lines = [
        json.dumps(op(f"x{n}", "insert") | ({"parents": [f"channel/{n}"]} if n % 3 else {}))
        for n in numbers
    ]
    accept(scene, "\n".join(lines), "application/x-ndjson")
    scene.project()

    rows = [json.loads(event.data) for event in caught_up(scene, "0") if event.data]
    parents = {row["id"]: row["parents"] for row in rows}
    assert parents == {f"x{n}": [f"channel/{n}"] if n % 3 else [] for n in numbers}
    with pytest.raises(Rejected, match="insert, update, delete"):
        accept(scene, json.dumps(op("x", "create")))


def test_W08_slashes_do_not_make_two_objects_one(scene: Scene) -> None:
    """oplog kept `a/b` + `c` and `a` + `b/c` in one row. Here each has its own."""
    scene.post(op("c", "insert", type="a/b"), op("b/c", "insert", type="a"))
    scene.post(op("c", "delete", type="a/b"))
    scene.project()

    assert len(scene.rows()) == 2
    assert names(caught_up(scene, "0")) == ["reset", "insert b/c", "live"]


@pytest.mark.parametrize("begin", ["0", "1", str(NOW + 10**9), OLD_ID])
@pytest.mark.parametrize("objects", [0, 3])
def test_W09_live_always_has_a_place(begin: str, objects: int) -> None:
    """oplog's `live` had an empty id if no row was sent: a client that stored it began at the end
    of the log after a restart. Here it is the place after every event sent.
    """
    scene = Scene()
    for number in range(objects):
        scene.post(op(f"x{number}", "insert"))
    scene.project()
    live = caught_up(scene, begin)[-1]
    assert live.name == "live" and re.fullmatch("[0-9a-f]{24}", live.id)

    scene.post(op("next"))
    assert names(caught_up(scene, live.id)) == ["update next"]


@pytest.mark.parametrize("skew_ms", [-limits.CLOCK_SKEW_MS_MAX, limits.CLOCK_SKEW_MS_MAX])
def test_W10_the_clocks_of_writers_decide_nothing(skew_ms: int) -> None:
    """oplog's replication ids were its agents' clocks: operations of a slow clock were skipped on
    resume. Here a place is a page, and if only its time is left, pages near that time are sent too.
    """
    scene = Scene()
    first = scene.post(op("first", "insert"))
    scene.now_ms += skew_ms
    scene.post(op("skewed", "insert"))
    scene.project()
    events = caught_up(scene, "0")

    for told in range(1, len(events) + 1):
        held = copy_of(caught_up(scene, events[told - 1].id), copy_of(events[:told]))
        assert held.keys() == {"first", "skewed"}
    scene.now_ms = NOW + limits.CLOCK_SKEW_MS_MAX
    trimmed(scene, 3)
    assert "insert skewed" in names(caught_up(scene, first.end.encode()))


class LosesAnswers(MemoryLog):
    """A log that writes each page the first time without an answer to the writer."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()

    def put(self, feed: str, page: Page) -> str:
        found = super().put(feed, page)
        if page.number not in self.lost:
            self.lost.add(page.number)
            raise Unavailable("no answer")
        return found


def test_W11_a_retry_is_appended_once() -> None:
    """oplog stored a request that had timed out all the same, and its retry again. Here the retry
    finds the page of the first attempt by its key, and is answered with its ids.
    """
    scene = Scene(log=LosesAnswers())
    body = json.dumps([op("a"), op("b")])
    with pytest.raises(Unavailable):
        accept(scene, body, key="k")

    ids = accept(scene, body, key="k")
    assert accept(scene, body, key="k") == ids
    assert [event.id for event in caught_up(scene, START.encode())] == ids


def test_W12_only_what_is_durable_is_read(cloud: Cloud) -> None:
    """oplog acknowledged with one server's word and read from others: streamed operations could be
    rolled back. Here a page counts when its conditional write is answered, and every read of
    state and checkpoints is strongly consistent. A read of the log may miss a page written a moment
    ago, and never returns a page that is not durable; only a consistent one returns its end.
    """
    seen: list[tuple[str, Any]] = []

    def note(params: dict[str, Any], model: Any, **_: object) -> None:
        of_pages = model.name == "Query" and "#body" in params.get("ProjectionExpression", "")
        seen.append(("pages" if of_pages else model.name, params.get("ConsistentRead")))

    for client in (clients.dynamodb(), clients.dynamodb_once()):
        client.meta.events.register("provide-client-params.dynamodb", note)
    page = Page(1, line("x"), "id", NOW)
    assert stage().stores.log.put(FEED, page) == "id"
    stage().stores.log.read(FEED, 0)
    catch_up = stage().catch_up
    progress = catch_up.start(FEED, cursors.parse("0"))
    for _ in range(3):
        progress = catch_up.step(FEED, progress, EVERYTHING).progress

    reads = [each for each in seen if each[0] in ("Query", "GetItem", "BatchGetItem", "Scan")]
    assert {name for name, _ in reads} >= {"Query"} and len(reads) > limits.BUCKETS
    assert [name for name, consistent in reads if not consistent] == []
    assert [consistent for name, consistent in seen if name == "pages"][-1]


def test_W13_a_killed_consumer_leaves_a_whole_state_file(tmp_path: Path) -> None:
    """oplog's client cut its file before it wrote it, and an empty one means `now`: a kill in
    between lost everything until then. Here the file holds one whole cursor at every moment.
    """
    path = tmp_path / "state"
    program = (
        "import sys, pathlib\n"
        "from tidings.client.files import StateFile\n"
        "file = StateFile(pathlib.Path(sys.argv[1]))\n"
        "for number in range(10**9): file.save(f'{number:024x}')\n"
    )
    last = ""
    for _ in range(KILLS):
        saving = subprocess.Popen([sys.executable, "-c", program, path])
        while not path.exists() or path.read_text() in ("", last):
            assert path.exists() is False or re.fullmatch("[0-9a-f]{24}", path.read_text())
            time.sleep(0.005)
        os.kill(saving.pid, signal.SIGKILL)
        saving.wait()
        last = path.read_text()
        assert re.fullmatch("[0-9a-f]{24}", last)


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


def test_W23_a_client_is_told_what_is_wrong(scene: Scene) -> None:
    """oplog's 503 without a word made producers send the same bad operation again. Here it is 400
    with field, value and rule; and a batch is one request.
    """
    body = json.loads(refusal(refused(scene, '{"event":"move","type":"t","id":"x"}')).body)
    assert (body["error"]["code"], body["error"]["field"]) == ("invalid_operation", "event")
    assert "move" in body["error"]["value"] and "insert" in body["error"]["rule"]

    ids = accept(scene, json.dumps([op("a"), op("b")]))
    assert len(ids) == len(caught_up(scene, START.encode())) == 2


def test_W23_the_agent_listens_to_its_own_machine() -> None:
    """oplog accepted datagrams from any host, on all addresses, and passed them on."""
    tidings = Path(sys.executable).parent / "tidings"
    helped = subprocess.run(
        [tidings, "agent", "--help"], capture_output=True, text=True, check=True
    )

    assert "127.0.0.1:8042" in helped.stdout


def test_W24_a_browser_is_told_all_and_can_ask_for_all(scene: Scene) -> None:
    """EventSource drops blocks without data, which oplog's `reset` and `live` were, and cannot set
    a header. Here both have data, the query may contain the id, and a page elsewhere may read.
    """
    scene.post(op("x", "insert"))
    scene.project()
    client = Client(streams(scene), enough=until_live)
    run(client.ask("GET", "lastEventId=0", accept="text/event-stream", origin=ORIGIN))

    assert [event.name for event in client.events()] == ["reset", "insert", "live"]
    assert len(re.findall("^data: .+$", client.text, re.MULTILINE)) == 3
    assert client.headers["access-control-allow-origin"] == ORIGIN
    assert "last-event-id" in client.headers["access-control-expose-headers"]


def test_W26_deleted_objects_are_forgotten_in_the_end(scene: Scene) -> None:
    """oplog kept them for ever. Here they expire: a client that was away longer is reset."""
    before = scene.post(op("gone", "insert"), op("stays", "insert"))
    scene.post(op("gone", "delete"))
    scene.project()
    assert len(scene.rows()) == 2

    scene.now_ms += TOMBSTONE_MS
    scene.state.expire(scene.now_ms)
    scene.log.raise_floor(FEED, 3)
    scene.log.expire(2**62)
    assert len(scene.rows()) == 1
    assert names(caught_up(scene, before.end.encode())) == ["reset", "insert stays", "live"]
