"""Requests that append at the same time share one commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tidings.core.errors import Unavailable
from tidings.core.model.pages import Page
from tidings.server import writer as writer_module
from tidings.server.loop_guard import LoopWouldBlock
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog
from tidings.server.writer import JOBS_MAX, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FEED = "main"


class Counted(Database):
    """Counts its commits; those of *failing* fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits, self.failing = 0, False
        self.steps = replace(self.steps, write_more=self._count)

    def _count(self, _: object) -> None:
        self.commits += 1
        if self.failing:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Counted]:
    made = Counted(tmp_path / "feed.db")
    yield made
    made.close()


def append(log: SqliteLog, *, fails: bool = False) -> int:
    number = log.take(FEED)
    log.put(FEED, Page(number, '"x"', f"a{number}", 1, 0))
    if fails:
        raise ValueError("no")
    return number


def run(database: Database, *jobs: Callable[[SqliteLog], int]) -> list[int | BaseException]:
    """Return the answers of one writer to *jobs* that arrive at the same time."""

    async def written() -> list[int | BaseException]:
        writer, log = Writer(database, asyncio.get_running_loop()), SqliteLog(database)
        database.steps = replace(database.steps, submit=writer.submit)
        jobs_ = [writer.write(partial(job, log)) for job in jobs]
        answers = await asyncio.gather(*jobs_, return_exceptions=True)
        await writer.stop()
        return answers

    return asyncio.run(written())


def test_jobs_that_wait_share_a_commit(database: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered with its own result, in the order they came."""
    monkeypatch.setattr(writer_module, "JOBS_S_MAX", 180.0)
    assert run(database, *[append] * JOBS_MAX) == list(range(1, JOBS_MAX + 1))
    assert database.commits == 1


def test_long_jobs_share_no_commit(database: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does other work after each of them. A failed job does not delay the next one."""
    monkeypatch.setattr(writer_module, "JOBS_S_MAX", 0.0)

    first, failed, *others = run(database, append, partial(append, fails=True), append, append)
    assert [first, *others] == [1, 2, 3]
    assert isinstance(failed, ValueError)
    assert database.commits == 4


def test_a_job_that_fails_is_undone_alone(database: Counted) -> None:
    """The others of its transaction stay, and no number is lost."""

    first, failed, last = run(database, append, partial(append, fails=True), append)
    assert (first, last) == (1, 2)
    assert isinstance(failed, ValueError)
    assert [page.number for page in SqliteLog(database).read(FEED, 0)] == [1, 2]


def test_all_hear_of_a_commit_that_failed(database: Counted) -> None:
    """None of their writes is stored; the next job succeeds."""

    database.failing = True
    assert [type(each) for each in run(database, *[append] * 3)] == [Unavailable] * 3
    database.failing = False
    assert run(database, append) == [1]


def test_threads_write_by_jobs(database: Counted) -> None:
    """They share commits with the requests of the loop, and get the errors of their own jobs."""
    threads = set()

    async def main() -> list[int | BaseException]:
        writer, log = Writer(database, asyncio.get_running_loop()), SqliteLog(database)
        database.steps = replace(database.steps, submit=writer.submit)

        def job(*, fails: bool = False) -> int:
            threads.add(threading.current_thread())
            return append(log, fails=fails)

        def write(*, fails: bool = False) -> int:
            return database.write(lambda _: job(fails=fails))

        jobs = [asyncio.to_thread(write, fails=each == 3) for each in range(9)]
        answers = await asyncio.gather(writer.write(job), *jobs, return_exceptions=True)
        await writer.stop()
        with pytest.raises(Unavailable):
            await asyncio.to_thread(write)
        return answers

    answers = asyncio.run(main())
    assert [type(each) for each in answers].count(ValueError) == 1
    numbers = sorted(each for each in answers if isinstance(each, int))
    assert numbers == list(range(1, 10))
    assert threads == {threading.current_thread()}
    assert [page.number for page in SqliteLog(database).read(FEED, 0)] == numbers


def test_a_thread_cannot_write_around_the_writer(database: Counted) -> None:
    """Neither can the loop, outside of a job, which would wait for itself."""

    async def main() -> None:
        writer = Writer(database, asyncio.get_running_loop())
        database.steps = replace(database.steps, submit=writer.submit)
        for write in (database.transaction, lambda: database.write(lambda _: None)):
            with pytest.raises(LoopWouldBlock):
                write()
        with pytest.raises(LoopWouldBlock):
            await asyncio.to_thread(database.transaction)
        await writer.stop()

    asyncio.run(main())


def test_a_file_that_another_program_writes_is_unavailable(
    database: Counted, tmp_path: Path
) -> None:
    """This is as for a disk that does not respond; the next job is written."""
    with closing(sqlite3.connect(tmp_path / "feed.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (refused,) = run(database, append)
        other.execute("ROLLBACK")

    assert isinstance(refused, Unavailable)
    assert run(database, append) == [1]
