"""A file in which a number was taken and its page never written, and one that lost a page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.core.followers.test_follower import Diary
from tests.unit.server.test_crashes import FEED, Consumer, Producer, hosted
from tidings.core import limits
from tidings.core.archive.generations import lost_parts
from tidings.core.archive.reader import ArchiveReader
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import ARCHIVE
from tidings.core.model.feeds import PUSH, STATE
from tidings.core.model.pages import Page
from tidings.core.replication.admin import Action
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.server.host import Host
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

UPSTREAM = '{"main": {"url": "http://127.0.0.1:9/feeds/main"}}'  # where nothing listens
WITHIN_S = 180.0


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(done):
            await asyncio.sleep(0.01)


async def _posted(path: Path, name: str, count: int = 1) -> None:
    """Post objects, and stop when the state has them."""
    async with hosted(path) as (host, app):
        await Producer(app, name).post(count)
        await _until(lambda: _state(host) == host.stores.log.head(FEED))


def _state(host: Host) -> int:
    return host.stores.followers.checkpoints(FEED).get(STATE, 0)


def _numbers(host: Host) -> list[int]:
    return [page.number for page in host.stores.log.read(FEED, 0)]


def _rows(host: Host) -> list[str]:
    return [row.key for bucket in range(64) for row in host.stores.state.read(FEED, bucket)]


def _change(path: Path, *statements: str) -> None:
    with contextlib.closing(Database(path)) as database, database.transaction() as sql:
        for statement in statements:
            sql.execute(statement)


@pytest.mark.parametrize(
    ("clients", "traced", "pushed"), [(0, 0, []), (1, 0, [1, 2, 3]), (0, 2, [1, 2, 3])]
)
def test_push_skips_pages_only_without_clients(
    tmp_path: Path, clients: int, traced: int, pushed: list[int]
) -> None:
    """Pages with a trace are not skipped, so that their handling is reported."""

    async def run() -> None:
        async with hosted(tmp_path / "feed.db") as (host, app):
            await Producer(app, "a").post(3)
            await _until(lambda: host.stores.followers.checkpoints(FEED).get(PUSH) == 3)
            host.stores.followers.set_checkpoint(FEED, PUSH, 0)
            host._traced[FEED] = traced
            for name in range(clients):
                host.sockets.add(f"{name}")
            pusher = Diary(name=PUSH)
            await asyncio.to_thread(host._push, FEED, pusher)
            assert pusher.seen == pushed
            assert host.stores.followers.checkpoints(FEED)[PUSH] == 3

    asyncio.run(run())


def _take(path: Path, count: int) -> None:
    """Take numbers without pages, as a killed process of an earlier release left them."""
    with contextlib.closing(Database(path)) as database:
        for _ in range(count):
            SqliteLog(database).take(FEED, 1)


OLD_MS = 2 * limits.HOLE_LOST_MS


@pytest.mark.parametrize("later", [0, 2], ids=["at-the-end", "below-pages"])
@pytest.mark.parametrize("off", [False, True], ids=["at-once", "after-two-days"])
def test_a_number_that_no_page_was_written_under_is_filled(
    tmp_path: Path, later: int, caplog: pytest.LogCaptureFixture, *, off: bool
) -> None:
    """This holds for any later posts of a release that was stuck there, and for any age."""
    path = tmp_path / "feed.db"
    asyncio.run(_posted(path, "a"))
    _take(path, 2 + later)
    pages = [
        f"INSERT INTO pages SELECT feed, {number}, replace(body, 'a-0', 'b-{number}'),"
        f" 'x{number}', at_ms, expires_ms, slots, trace, skipped"
        " FROM pages WHERE page = 1"
        for number in range(4, 4 + later)
    ]
    stuck = f"INSERT OR REPLACE INTO followers VALUES ('{FEED}', '{PUSH}', {3 + later}, 0, x'')"
    old = f"UPDATE pages SET at_ms = at_ms - {OLD_MS * off}"
    _change(path, *pages, stuck, old)

    async def resumed() -> None:
        async with hosted(path) as (host, app):
            assert host.metrics["HolesFilled"] == 2
            await Producer(app, "c").post(1)
            await _until(lambda: _state(host) == host.stores.log.head(FEED) == 4 + later)
            rows = await asyncio.to_thread(_rows, host)
            consumer = Consumer(app)
            async with asyncio.timeout(WITHIN_S):
                await consumer.listen(2 + later)
        wanted = ["a-0", *(f"b-{number}" for number in range(4, 4 + later)), "c-0"]
        assert consumer.heard == wanted
        assert sorted(rows) == sorted(f"video/{name}" for name in wanted)

    with caplog.at_level(logging.WARNING):
        asyncio.run(resumed())
    assert "main: filled pages 2 to 3" in caplog.text
    asyncio.run(_posted(path, "d"))  # nothing is left to repair


def test_an_archive_that_passed_a_hole_is_written_again(tmp_path: Path) -> None:
    """Otherwise the pages before the hole could not be read from it."""
    path, archive = tmp_path / "feed.db", tmp_path / "archive"
    asyncio.run(_archived(path, archive, "a"))
    _take(path, 1)
    _change(path, f"UPDATE followers SET checkpoint = 2 WHERE name = '{ARCHIVE}'")
    head = asyncio.run(_archived(path, archive, "b"))
    reader = ArchiveReader(FolderArchive(archive), lambda *_: None)
    assert (head, reader.reaches(FEED, 0, head)) == (3, True)


def test_the_server_before_a_restore_still_runs(tmp_path: Path) -> None:
    """Both write the same archive; readers find only what the restored server wrote."""
    first, second, archive = tmp_path / "feed.db", tmp_path / "new.db", tmp_path / "archive"
    asyncio.run(_archived(first, archive, "kept"))
    shutil.copy(first, second)
    for name in ("b", "c"):
        asyncio.run(_archived(first, archive, f"late-{name}"))
        head = asyncio.run(_archived(second, archive, f"new-{name}"))
    reader, pages = ArchiveReader(FolderArchive(archive), lambda *_: None), list[Page]()
    while found := reader.read(FEED, pages[-1].number if pages else 0, head):
        pages += found
    names = [json.loads(page.text)["id"] for page in pages if page.text]
    assert names == ["kept-0", "new-b-0", "new-c-0"]
    (late,) = lost_parts(FolderArchive(archive), FEED)  # the restore has removed the other one
    assert (late.first, late.generation) == (3, 0)


async def _archived(path: Path, archive: Path, name: str) -> int:
    """Post to the server of *path*, and return the last page when it is archived."""
    async with hosted(path, archive) as (host, app):
        await Producer(app, name).post(1)
        head = await asyncio.to_thread(host.stores.log.head, FEED)
        await _until(lambda: _state(host) == head)
        host.waker.wake(FEED, ARCHIVE)
        await _until(lambda: host.stores.followers.checkpoints(FEED).get(ARCHIVE) == head)
    return head


def test_a_page_that_was_there_is_not_replaced(tmp_path: Path) -> None:
    """The state has handled it: an empty page would hide the loss."""
    path = tmp_path / "feed.db"
    asyncio.run(_posted(path, "a", 3))
    _change(path, "DELETE FROM pages WHERE page = 2")

    async def resumed() -> list[int]:
        async with hosted(path) as (host, app):
            await Producer(app, "b").post(1)
            await _until(lambda: _state(host) == host.stores.log.head(FEED))
            return await asyncio.to_thread(_numbers, host)

    assert asyncio.run(resumed()) == [1, 3, 4]


def test_a_copy_is_not_filled_until_it_is_promoted(tmp_path: Path) -> None:
    """Its pages are its upstream's; then it is a feed as any other."""
    path = tmp_path / "feed.db"
    asyncio.run(_posted(path, "a"))
    _take(path, 1)

    async def copying() -> list[int]:
        async with hosted(path, TIDINGS_SOURCES=UPSTREAM) as (host, _):
            control = host.relay_control
            await asyncio.to_thread(control.act, FEED, Action.PROMOTE, {"why": "a test"})
            return await asyncio.to_thread(_numbers, host)

    first, jumped = asyncio.run(copying())  # its master may have had more pages
    assert first == 1

    async def promoted() -> list[int]:
        async with hosted(path, TIDINGS_SOURCES=UPSTREAM) as (host, app):
            await Producer(app, "b").post(1)
            return await asyncio.to_thread(_numbers, host)

    assert asyncio.run(promoted()) == [1, 2, jumped, jumped + 1]


def test_a_disk_that_is_full_at_the_start_is_repaired_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledged operations are served in the meantime."""
    path = tmp_path / "feed.db"
    asyncio.run(_posted(path, "a"))
    _take(path, 1)

    fill, failed = SqliteLog.fill, list[str]()

    def full_once(log: SqliteLog, feed: str, pages: Sequence[Page]) -> None:
        if not failed:
            failed.append(feed)
            raise Unavailable("the database: database or disk is full")
        fill(log, feed, pages)

    monkeypatch.setattr(SqliteLog, "fill", full_once)

    async def main() -> None:
        async with hosted(path) as (host, _):
            assert await asyncio.to_thread(_numbers, host) == [1]
            await asyncio.to_thread(host.sweep)
            await _until(lambda: _state(host) == host.stores.log.head(FEED) == 2)

    asyncio.run(main())
    assert failed
