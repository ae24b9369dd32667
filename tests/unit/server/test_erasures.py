"""A server erases objects: its folder has no byte of them, and its clients are not disconnected."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.unit.server.test_crashes import FEED, Consumer, Producer, hosted
from tidings.core.consumers.consumer import Change, Parked
from tidings.core.consumers.consumer import Consumer as Named
from tidings.core.durable_streams import messages
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.server.host import Host
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.documents import Documents
from tidings.server.sqlite.erasures import SqliteFreeSpace

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
            Documents(database, "any").put(FEED, "name", text)
            Documents(database, "any").remove(FEED, "name")
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
