"""A server erases objects: its folder has no byte of them, and its clients are not disconnected."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from tests.unit.server.test_crashes import FEED, Consumer, Producer, hosted
from tidings.core.auth.keys import Key
from tidings.core.changeagent.changes import Change as Posted
from tidings.core.changeagent.changes import line_of
from tidings.core.consumers.consumer import Change, Failure, Parked
from tidings.core.consumers.consumer import Consumer as Named
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.service import StreamWriter
from tidings.core.durable_streams.stream import Appending
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.erasure.records import Erasure, ErasureStore, Phase
from tidings.core.errors import Unavailable
from tidings.core.model.filters import Filter
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.records import Kind, RecordStore, Write
from tidings.server.host import Host
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.erasures import SqliteFreeSpace
from tidings.server.sqlite.records import SqliteRecords

MARKER = "the-secret"
WITHIN_S = 180.0
ENTRY = Entry("video", "object-x", "ann", "a test")


def operation(id_: str, size: int = 1, **fields: Any) -> dict[str, Any]:
    data = {"text": f"{MARKER} " * size} if id_ == ENTRY.id else "other"
    return {"event": "update", "type": "video", "id": id_, "data": data, **fields}


def post(host: Host, *operations: dict[str, Any]) -> Page:
    lines = [line_from(each, now_ms=host.runtime.clock()) for each in operations]
    return host.appender.append(FEED, lines)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield all files below *folder*, those of the archive also unpacked."""
    for path in folder.rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            yield path.name, body
            if path.name.endswith(".gz"):
                yield path.name, gzip.decompress(body)


def holders(folder: Path, text: str) -> list[str]:
    return sorted({name for name, body in contents(folder) if text.encode() in body})


def packed_bodies(path: Path) -> list[bytes]:
    """Return the compressed bodies of all pages."""
    with Database(path).reading() as sql:
        found = sql.execute("SELECT body FROM pages WHERE typeof(body) = 'blob'").fetchall()
    return [body for (body,) in found]


async def until(host: Host, erasure: Erasure, phase: Phase) -> Erasure:
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = await asyncio.to_thread(host.stores.erasures.erasure, FEED, erasure.id)
            if found is not None and found.reached(phase):
                return found
            await asyncio.sleep(0.02)


def use(host: Host) -> list[Page]:
    """Post the object in pages of all sizes, among others, and park a message of it."""
    posted = []
    for number in range(40):
        size = 1 + number % 4 * 40  # some pages are compressed, others are text
        others = (operation(f"y{number}-{each}") for each in range(number % 3))
        posted.append(post(host, operation(ENTRY.id, size, parents=[f"p{number % 5}"]), *others))
    page = posted[3]
    parked = Parked(page.id_prefix + "000000", page.lines[0], f"bad {MARKER}", 1)
    change = Change(Named(FEED, "index", position=page.end, parked=1), park=parked)
    assert host.stores.consumers.write(FEED, "index", 0, change)
    return posted


async def _erased(folder: Path) -> tuple[Erasure, list[bytes]]:
    async with hosted(folder / "feed.db", folder) as (host, app):
        posted = await asyncio.to_thread(use, host)
        before = [page.body for page in posted if isinstance(page.body, bytes)]
        assert len(before) > 5
        await asyncio.to_thread(host.sweep)
        assert host.erasures is not None
        erasure = await asyncio.to_thread(host.erasures.request, FEED, ENTRY)
        await Producer(app, "later").post(5)
        done = await until(host, erasure, Phase.KEPT)
        entries = await asyncio.to_thread(host.stores.log.read, FEED, 0)
        assert [page.number for page in entries] == list(range(1, 47))
        consumer = Consumer(app, posted[0].end.encode())
        async with asyncio.timeout(WITHIN_S):
            await consumer.listen(45 + sum(len(page.lines) - 1 for page in posted[1:]))
        assert consumer.heard.count("erased:29") == 39
    return done, before


def test_no_byte_of_an_object_is_left(tmp_path: Path) -> None:
    """Not in the database, its write-ahead log, or the archive; ids and pages stay as they were."""
    done, before = asyncio.run(_erased(tmp_path))
    assert (done.entries, done.pages, done.parked) == (40, 40, 1)
    assert holders(tmp_path, MARKER) == []
    bodies = packed_bodies(tmp_path / "feed.db")
    for body in before:
        assert body not in bodies
        assert b"".join(each for _, each in contents(tmp_path)).find(body[:64]) == -1


async def _continued(folder: Path) -> None:
    async with hosted(folder / "feed.db") as (host, _):
        await asyncio.to_thread(use, host)
        assert host.erasures is not None
        host.waker.stop()  # as if the process were killed after the request
        await asyncio.to_thread(host.erasures.request, FEED, ENTRY)
    async with hosted(folder / "feed.db") as (host, _):
        (erasure,) = await asyncio.to_thread(host.stores.erasures.erasures, FEED)
        await until(host, erasure, Phase.KEPT)


def test_a_server_continues_when_it_starts(tmp_path: Path) -> None:
    """Without a sweep."""
    asyncio.run(_continued(tmp_path))
    assert holders(tmp_path, MARKER) == []


async def _restored(folder: Path) -> list[Erasure]:
    async with hosted(folder / "feed.db") as (host, app):
        await asyncio.to_thread(use, host)
        await asyncio.to_thread(host.database.back_up, folder / "backup")
        assert host.erasures is not None
        erasure = await asyncio.to_thread(host.erasures.request, FEED, ENTRY)
        await until(host, erasure, Phase.KEPT)
        await Producer(app, "lost").post(3)
    (folder / "backup").replace(folder / "feed.db")
    for _ in range(2):
        async with hosted(folder / "feed.db") as (host, app):
            await Producer(app, "later").post(3)
            found = await asyncio.to_thread(host.stores.erasures.erasures, FEED)
            await until(host, found[0], Phase.KEPT)
    return list(found)


def test_an_erasure_that_a_restored_file_lacks_is_requested_again(tmp_path: Path) -> None:
    """Once, with its principal and its reason; later operations of other objects stay."""
    (found,) = asyncio.run(_restored(tmp_path))
    assert (found.object_id, found.by, found.reason) == (ENTRY.id, ENTRY.by, ENTRY.reason)
    assert found.entries == 40
    assert holders(tmp_path, MARKER) == []
    assert [path.stem for path in tmp_path.glob("erasures/*/*.json")] == [found.id]


STREAM, CONTINUED = "stream-of-ann", "continued-of-ann"
ENTRIES = [
    Entry("user", "ann-1", "dpo", "r", as_parent=True),
    Entry("change", "c0ffee", "dpo", "r"),
    Entry("durable-stream", STREAM, "dpo", "r"),
    Entry("durable-stream", CONTINUED, "dpo", "r"),
    Entry("user", "unknown", "dpo", "r"),
]
MARKS = "tag", "operation", "change", "parked", "failure", "message", "revoked"


def streams(host: Host) -> StreamWriter:
    return StreamWriter(
        appender=host.appender, store=host.stores.streams, runtime=host.runtime, tracer=host.tracer
    )


def use_every_place(host: Host) -> None:
    """Leave a mark in each place that may have data of an object, then request erasures."""
    now_ms, stores = host.runtime.clock(), host.stores
    user = {"event": "update", "type": "user", "id": "ann-1"}
    page = post(host, {**user, "tags": ["mark-tag"], "data": "mark-operation"})
    post(host, operation("y", tags=["user/ann-1"], parents=["user/ann-1"]))
    posted = Posted('"mark-change"', ("user/ann-1",))
    host.appender.append(FEED, [line_of(posted, name="c0ffee", now_ms=now_ms)])
    parked = Parked(page.id_prefix + "000000", page.lines[0], "mark-parked", 1)
    change = Change(Named(FEED, "index", position=page.end, parked=1), park=parked)
    assert stores.consumers.write(FEED, "index", 0, change)
    failure = Failure(page.id_prefix + "000000", "mark-failure", now_ms)
    named = Named(FEED, "failed", failure=failure, filter=Filter(ids=frozenset({"ann-1"})))
    assert stores.consumers.write(FEED, "failed", 0, Change(named))
    bound = Filter(parents=frozenset({"user/ann-1"}))
    for name, end_ms in (("revoked", 1), ("live", 0)):
        label = f"mark-{name} of ann-1"
        key = Key(name, "", frozenset(), bound, label=label, revoked_ms=end_ms)
        assert stores.keys.save(FEED, key)
    for name in (STREAM, CONTINUED):
        content = Appending(b'["mark-message"]', "application/json")
        assert streams(host).create(FEED, name, content)[1]
    host.sweep()
    for entry in ENTRIES:
        host.erasures.request(FEED, entry)
    streams(host).append(FEED, CONTINUED, Appending(b'["later"]', "application/json"))


class _Killing(ErasureStore):
    """A store of erasures in which the job stops before it has saved a step."""

    def __init__(self, records: RecordStore, saves: int) -> None:
        super().__init__(records)
        self._left, self.ended = saves, Event()

    def save(self, feed: str, erasure: Erasure) -> bool:
        self._left -= 1
        if self._left < 0:
            self.ended.set()
            raise Unavailable("killed")
        return super().save(feed, erasure)


async def _killed_again_and_again(folder: Path) -> int:
    """Erase in runs that end after a few steps, until all is erased; return the number of runs."""
    for runs in count():
        async with hosted(folder / "feed.db", folder) as (host, _):
            store = _Killing(host.stores.records, saves=3)
            vars(host)["erasure_progress"] = replace(host.erasure_progress, store=store)
            vars(host).pop("eraser", None)
            if not runs:
                await asyncio.to_thread(use_every_place, host)
            while not store.ended.is_set():
                found = await asyncio.to_thread(host.stores.erasures.erasures, FEED)
                if len(found) == len(ENTRIES) and all(e.reached(Phase.KEPT) for e in found):
                    return runs
                await asyncio.sleep(0.02)
    raise AssertionError


async def _reported(folder: Path) -> tuple[list[Erasure], dict[str, str], Any]:
    async with hosted(folder / "feed.db", folder) as (host, _):
        found = await asyncio.to_thread(host.stores.erasures.erasures, FEED)
        shown = await asyncio.to_thread(host.erasure_reporter.locations, FEED, found[0])
        left = await asyncio.to_thread(host.stores.streams.stream, FEED, CONTINUED)
        return list(found), {each.name: each.note for each in shown}, left


def places_of(path: Path, text: str) -> set[str]:
    """Return the tables, and the kinds of documents, that have *text*."""
    with closing(sqlite3.connect(path)) as sql:
        tables = sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = [(name, row) for (name,) in tables for row in sql.execute(f"SELECT * FROM {name}")]
    return {
        row[0] if name in ("documents", "records") else name
        for name, row in rows
        if text in str(row)
    }


def test_every_place_is_erased_by_a_job_that_is_killed_between_its_steps(tmp_path: Path) -> None:
    """The job continues at each start. What an operator has to change is named."""
    assert asyncio.run(_killed_again_and_again(tmp_path)) > 5
    found, notes, continued = asyncio.run(_reported(tmp_path))
    assert {mark: holders(tmp_path, f"mark-{mark}") for mark in MARKS} == {
        each: [] for each in MARKS
    }
    assert [each.has_found for each in found] == [True] * 4 + [False]
    assert notes["filters"].endswith(": consumer failed, key live")
    assert continued is not None, "a stream with messages after its erasure continues"
    kept = {"pages", "rows", "erasure"}  # the erasure entry, until it is erased
    path = tmp_path / "feed.db"
    assert places_of(path, STREAM) == places_of(path, "c0ffee") == kept
    assert places_of(path, "ann-1") == {*kept, "consumer", "key"}


def database_with(path: Path, act: Callable[[Database], object]) -> None:
    database = Database(path)
    try:
        act(database)
    finally:
        database.close()


def test_free_pages_and_the_write_ahead_log_are_overwritten(tmp_path: Path) -> None:
    """Also if a killed process left its table; a reader prevents it for as long as it reads."""
    path = tmp_path / "feed.db"

    def act(database: Database) -> None:
        space = SqliteFreeSpace(database)
        database.write(lambda sql: sql.execute("CREATE TABLE free_space (body)"))
        database.write(lambda sql: sql.execute("INSERT INTO free_space VALUES ('left')"))
        for size in (10, 100_000, 3_000_000):
            text = (f"{MARKER} " * size)[:size]
            for fields in ({"text": text}, None):
                SqliteRecords(database).write(FEED, [Write(Kind("any"), "name", fields)])
        assert MARKER.encode() in b"".join(body for _, body in contents(tmp_path))
        with database.reading() as sql:
            sql.execute("SELECT count(*) FROM pages").fetchone()
            assert not space.overwrite()
        assert space.overwrite()
        assert (tmp_path / "feed.db-wal").stat().st_size == 0
        with database.reading() as sql:
            assert (
                sql.execute("SELECT * FROM sqlite_master WHERE name = 'free_space'").fetchall()
                == []
            )

    database_with(path, act)
    assert holders(tmp_path, MARKER) == []


def test_the_file_is_rewritten_once(tmp_path: Path) -> None:
    """At the start after an erasure, and not at each start."""
    path = tmp_path / "feed.db"
    database_with(path, lambda database: SqliteFreeSpace(database).overwrite())
    vacuumed: list[bool] = []

    def act(database: Database) -> None:
        vacuum = database.vacuum
        database.vacuum = lambda: vacuumed.append(True) or vacuum()  # type: ignore[func-returns-value, method-assign]
        assert SqliteFreeSpace(database).rewrite_file()

    for _ in range(2):
        database_with(path, act)
    assert vacuumed == [True]


def test_a_stream_leaves_out_erased_messages() -> None:
    """Its offsets stay."""
    erased = encode_entry(ENTRY, now_ms=1).replace('"erase":true}', '"erased":true}')
    (kept,) = messages.lines_from("s", "application/json", b"7", 1)
    page = Page(1, encode([kept, erased, kept]), "", 1)
    assert messages.data_of(page, 0) == [7, 7]
    assert messages.data_of(page, 1) == [7]
