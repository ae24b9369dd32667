"""
The group commit: requests that append at the same time share one transaction, and its sync.

A sync of the disk takes as long for one page as for a hundred. So while one is under way, requests
gather, and the next transaction has them all. Each is answered when its page is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tidings.server.sqlite.database import Database

Result = TypeVar("Result")

JOBS_MAX = 256  # of one transaction: more would hold the first of them up, and save next to nothing


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs jobs on *database* in a thread of its own, in the order they came."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def write(self, run: Callable[[], Result]) -> Result:
        """
        What *run* returns, once all that it wrote is on disk.

        Raises:
            Exception: its own, and nothing that it wrote stays; or that of the commit.
        """
        job = _Job(run, asyncio.get_running_loop().create_future())
        self._jobs.put(job)
        result: Result = await job.done
        return result

    def stop(self) -> None:
        """Finish what was begun, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._waiting():
            try:
                with self._database.transaction():
                    for job in jobs:
                        self._do(job)
            except BaseException as error:  # noqa: BLE001 (of the commit: told to all who wait)
                for job in jobs:
                    job.error = error
            self._answer(jobs)

    def _waiting(self) -> list[_Job]:
        """All jobs that wait, the first of them for as long as it takes; none at the end."""
        job = self._jobs.get()
        if job is None:
            return []
        jobs = [job]
        try:
            while len(jobs) < JOBS_MAX:
                job = self._jobs.get_nowait()
                if job is None:
                    self._jobs.put(None)  # behind what came before it
                    break
                jobs.append(job)
        except Empty:
            pass
        return jobs

    def _do(self, job: _Job) -> None:
        try:
            with self._database.part():
                job.result = job.run()
        except Exception as error:  # noqa: BLE001 (told to who waits for it)
            job.error = error

    @staticmethod
    def _answer(jobs: list[_Job]) -> None:
        """By one call of the loop: each one wakes it."""
        jobs[0].done.get_loop().call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.done.done():
            continue  # whoever asked has left
        if job.error is None:
            job.done.set_result(job.result)
        else:
            job.done.set_exception(job.error)
