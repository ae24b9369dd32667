"""
The group commit: requests that append at the same time share one transaction, and its sync.

A sync of the disk takes as long for one page as for a hundred. So the requests that arrive during
one transaction share the next one. Each is answered when its page is on disk.

The writes run in the event loop: that takes less time than handing them to a thread, which would
wait for the interpreter at each call of SQLite. The commit also runs in the loop on a fast disk;
after a slow commit, a thread runs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tidings.server.sqlite.database import Database

Result = TypeVar("Result")

SLOW_S = 0.002  # a longer commit moves to a thread; for less, blocking is cheaper
JOBS_MAX = 256  # jobs per transaction: more would delay the first of them, and save little


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """A queue of jobs on *database*, run in the order of arrival."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs: list[_Job] = []
        self._is_slow = False
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")

    async def write(self, run: Callable[[], Result]) -> Result:
        """
        Return the result of *run* once all its writes are on disk.

        Raises:
            Exception: raised by *run*, and its writes are undone; or raised by the commit.
        """
        job = _Job(run, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        result: Result = await job.done
        return result

    async def stop(self) -> None:
        """Return when the jobs in progress have finished."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write(self) -> None:
        while self._jobs:
            jobs, self._jobs = self._jobs[:JOBS_MAX], self._jobs[JOBS_MAX:]
            try:
                await self._commit(jobs)
            except Exception as error:  # noqa: BLE001 (of the commit: raised in all callers)
                for job in jobs:
                    job.error = error
            for job in jobs:
                _settle(job)
        self._writing = None

    async def _commit(self, jobs: list[_Job]) -> None:
        loop, database = asyncio.get_running_loop(), self._database
        if not database.acquire(wait=False):
            # A thread acquires the lock for the loop. Until `begin` every other thread waits for
            # the loop, which is why the loop must not wait for a thread.
            await loop.run_in_executor(self._thread, database.acquire)
        database.begin()
        try:
            self._do_all(jobs)
        except BaseException:
            database.rollback()
            raise
        began_s = time.monotonic()
        if self._is_slow:
            database.pause()
            await loop.run_in_executor(self._thread, database.commit)
        else:
            database.commit()
        self._is_slow = time.monotonic() - began_s > SLOW_S

    def _do_all(self, jobs: list[_Job]) -> None:
        """
        Run all jobs; if one raises, which is rare, run all again so that each can be undone alone.
        """
        try:
            for job in jobs:
                job.result = job.run()
        except Exception:  # noqa: BLE001 (raised again by the job that caused it)
            self._database.begin_again()
            for job in jobs:
                self._do(job)

    def _do(self, job: _Job) -> None:
        try:
            with self._database.part():
                job.result = job.run()
        except Exception as error:  # noqa: BLE001 (raised in its caller)
            job.error = error


def _settle(job: _Job) -> None:
    if job.done.done():
        return  # the caller was cancelled
    if job.error is None:
        job.done.set_result(job.result)
    else:
        job.done.set_exception(job.error)
