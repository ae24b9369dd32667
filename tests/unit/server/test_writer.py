"""Requests that append at the same time share one commit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tidings.core.errors import Unavailable
from tidings.core.model.pages import Page
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
        self.before_commit = self._count

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
        writer, log = Writer(database), SqliteLog(database)
        jobs_ = [writer.write(partial(job, log)) for job in jobs]
        answers = await asyncio.gather(*jobs_, return_exceptions=True)
        await writer.stop()
        return answers

    return asyncio.run(written())


def test_jobs_that_wait_share_a_commit(database: Counted) -> None:
    """Each is answered with its own result, in the order they came."""

    assert run(database, *[append] * JOBS_MAX) == list(range(1, JOBS_MAX + 1))
    assert database.commits == 1


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


def test_a_job_waits_for_a_thread_that_writes(database: Counted) -> None:
    """The loop runs in the meantime."""

    async def main() -> tuple[int, int]:
        writer, log, turns = Writer(database), SqliteLog(database), 0
        assert await asyncio.to_thread(database.acquire)
        job = asyncio.ensure_future(writer.write(lambda: append(log)))
        while turns < 5:
            await asyncio.sleep(0.001)
            turns += 1
        assert not job.done()
        database.begin()
        database.commit()
        done = await job
        await writer.stop()
        return done, turns

    assert asyncio.run(main()) == (1, 5)


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
