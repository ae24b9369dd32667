"""Commit the writes of several requests in one transaction, with the rows of the state.

A sync of the disk takes as long for one page as for a hundred. So the requests that arrive during
one transaction share the next transaction and its sync. Each request is answered when its page is
on disk. The transaction also contains the rows of the state that its pages produce.

All writes run in the event loop, those of other threads, too. This is faster than a thread, which
would wait for Python's interpreter lock after each call of SQLite. A commit also runs in the loop
if the previous commit was fast, and otherwise in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidings.core.errors import STORAGE_DAMAGED, Unavailable
from tidings.core.followers.follower import STATE, FollowerConfig
from tidings.server.loop_guard import check_may_block
from tidings.server.wakeups import Retries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.followers.follower import Follower, Handler
    from tidings.core.model.pages import Page
    from tidings.server.memory import StoredFollower
    from tidings.server.sqlite.database import Database
    from tidings.server.sqlite.log import SqliteFollowers

log = logging.getLogger(__name__)
Result = TypeVar("Result")

# After a commit that took longer, a thread runs the next commit. Faster commits block the loop for
# less time than a change of threads takes.
SLOW_S = 0.002
JOBS_MAX = 256  # jobs per transaction; more jobs would delay the first of them and save little
JOBS_S_MAX = 0.01  # time after which no further job of a transaction begins, for the same reason
# One transaction writes the rows of at most this number of operations, in some 10 ms. The page of
# the largest request is within this limit. Slices write the other rows.
COMMIT_OPERATIONS_MAX = 1_000
SLICE_MS, SLICE_OPERATIONS = 5, 500  # limits of a slice, because it delays the next commit
_STOPPED = "the server has stopped"


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    done: asyncio.Future[Any] | Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """The only writer of *database*: a queue of jobs, which run in *loop* in order of arrival.

    *observe* is called with the duration of each commit in seconds.
    """

    def __init__(
        self,
        database: Database,
        loop: asyncio.AbstractEventLoop,
        observe: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.database, self.loop, self._observe = database, loop, observe
        self._stopped = False
        self._jobs: list[_Job] = []
        self._is_slow = False
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")

    async def write(self, run: Callable[[], Result]) -> Result:
        """Return the result of *run* once all its writes are on disk.

        Raises:
            Exception: the error that *run* or the commit raised; the writes of *run* are undone.
        """
        return await self.queue(run)

    def queue(self, run: Callable[[], Result]) -> asyncio.Future[Result]:
        """Return the future of the result of `write`; only in the event loop."""
        done: asyncio.Future[Result] = self.loop.create_future()
        self._add(_Job(run, done))
        return done

    def submit(self, run: Callable[[], Result]) -> Result:
        """Do the same as `write` for another thread, which waits.

        Raises:
            LoopWouldBlock: the caller runs in the event loop, and is not a job.
            Unavailable: the server has stopped, or the commit failed; nothing was written.
        """
        check_may_block("a commit")
        done: Future[Result] = Future()
        try:
            self.loop.call_soon_threadsafe(self._add, _Job(run, done))
        except RuntimeError:  # the loop is closed
            raise Unavailable(_STOPPED) from None
        return done.result()

    def _add(self, job: _Job) -> None:
        if self._stopped:
            job.error = Unavailable(_STOPPED)
            _settle(job)
            return
        self._jobs.append(job)
        if self._writing is None:
            self._writing = self.loop.create_task(self._write())

    async def stop(self) -> None:
        """Accept no more jobs, and return when those in the queue have finished."""
        self._stopped = True
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write(self) -> None:
        while self._jobs:
            jobs, self._jobs = self._jobs[:JOBS_MAX], self._jobs[JOBS_MAX:]
            try:
                await self._commit(jobs)
            except Exception as error:  # noqa: BLE001 (an error of the commit is raised in all jobs)
                for job in jobs:
                    job.error = error
            for job in jobs:
                _settle(job)
            if self.database.storage.problem is not None:
                self.loop.run_in_executor(None, self.database.find_problem)
            if self._jobs:
                await asyncio.sleep(0)  # the loop does other work between two commits
        self._writing = None

    async def _commit(self, jobs: list[_Job]) -> None:
        database = self.database
        if not database.acquire(wait=False):
            raise RuntimeError("an earlier transaction has not ended")
        database.begin()
        try:
            self._do_all(jobs)
            database.prepare()
        except BaseException:
            database.rollback()
            raise
        began_s = time.monotonic()
        if self._is_slow:
            database.pause()
            await self.loop.run_in_executor(self._thread, database.commit)
        else:
            database.commit()
        seconds = time.monotonic() - began_s
        self._is_slow = seconds > SLOW_S
        self._observe(seconds)

    def _do_all(self, jobs: list[_Job]) -> None:
        """Run *jobs*. If a job raises, which is rare, undo all.

        Unless it was the first one, repeat the jobs up to this one, each in a savepoint.

        If a job then raises again, its savepoint undoes this job alone. After a job that raises and
        after `JOBS_S_MAX`, put the jobs that did not run back into the queue.
        """
        until_s = time.monotonic() + JOBS_S_MAX
        try:
            for at, job in enumerate(jobs):
                if at and time.monotonic() >= until_s:
                    self._put_back(jobs, at)
                    break
                job.result = job.run()
        except Exception as error:  # noqa: BLE001 (`Writer.write` raises it, or the repeated job)
            if isinstance(error, sqlite3.Error):
                error = self.database.storage.translate(error)
            self._put_back(jobs, at + 1)
            self.database.begin_again()
            if not at:
                job.error = error
                return
            for each in jobs:
                try:
                    with self.database.part():
                        each.result = each.run()
                except Exception as error:  # noqa: BLE001 (`Writer.write` raises it)
                    each.error = error

    def _put_back(self, jobs: list[_Job], first: int) -> None:
        """Move the jobs from number *first* on from *jobs* to the start of the queue."""
        self._jobs[:0] = jobs[first:]
        del jobs[first:]


def _settle(job: _Job) -> None:
    if job.done.done():
        return  # the caller of `Writer.write` was cancelled
    if job.error is None:
        job.done.set_result(job.result)
    else:
        job.done.set_exception(job.error)


class StateProjection:
    """The follower `state` of a server, which writes rows in the transaction of their page.

    So after a commit, the state usually includes all pages of the log. It lags only after a
    transaction with very many operations, after an error, and after an import. The missing rows are
    then written in slices, which are short runs of the follower. `wake` schedules a slice, which
    runs in the event loop, between commits. *on_appended* is called with the feed after each slice.
    """

    def __init__(
        self,
        writer: Writer,
        followers: SqliteFollowers,
        follower: Follower,
        handler: Handler,
        on_appended: Callable[[str], object],
    ) -> None:
        self._writer, self._followers, self._handler = writer, followers, handler
        self._on_appended = on_appended
        follower_config = FollowerConfig(SLICE_OPERATIONS, SLICE_OPERATIONS, waits=False)
        self._follower = replace(follower, follower_config=follower_config)
        # The feeds for which the handler has begun, and has handled every page since then.
        self._begun: set[str] = set()
        self._retries = Retries(STATE, writer.loop, self.wake)
        self._due: set[str] = set()
        self._slices: set[asyncio.Task[None]] = set()
        self._stopped = False

    def project(self, pages: Sequence[tuple[str, Page]]) -> None:
        """Write the rows of *pages*, which this transaction has written, and all checkpoints.

        Raises:
            Unavailable: the disk is full or does not answer.
        """
        by_feed: dict[str, list[Page]] = {}
        for feed, page in pages:
            by_feed.setdefault(feed, []).append(page)
        for feed, some in by_feed.items():
            if not self._project(feed, some):
                self.wake(feed)
        self._followers.write()

    def _project(self, feed: str, pages: Sequence[Page]) -> bool:
        """Write the rows of *pages*; return True if the state includes all of *pages* now."""
        follower = self._followers.stored(feed, STATE)
        if follower.owner:  # a run has failed to release the lease
            return False
        checkpoint, operations, _ = self._followers.saved_of(follower)
        some, added = _following(checkpoint, pages)
        try:
            if some:
                with self._writer.database.part():
                    note = self._handle(follower, some, checkpoint)
                    saved = some[-1].number, operations + added, note
                    self._followers.move(follower, saved)
                return len(some) == len(pages)
        except Unavailable as error:
            if error.code != STORAGE_DAMAGED:  # a damaged state must not refuse posts
                raise
            log.warning(
                "%(feed)s: the state was not written: %(error)s", {"feed": feed, "error": error}
            )
        except Exception:
            log.exception(
                "%(feed)s: the rows of the state were not written with their pages", {"feed": feed}
            )
        return False

    def _handle(self, follower: StoredFollower, pages: Sequence[Page], checkpoint: int) -> bytes:
        """Write the rows of *pages*, which follow *checkpoint*; return the note of the handler."""
        feed = follower.feed
        self._writer.database.on_rollback(partial(self._begun.discard, feed))
        if feed not in self._begun:
            self._handler.begin(self._followers.lease(follower))
            self._begun.add(feed)
        self._handler.handle(feed, pages)
        self._follower.reader.count("FollowerPages", pages[-1].number - checkpoint)
        return self._handler.note(feed)

    def wake(self, feed: str) -> None:
        """Schedule a slice for *feed*; callable from any thread, without blocking."""
        if not (feed in self._due or feed in self._retries or self._stopped):
            self._due.add(feed)
            self._writer.loop.call_soon_threadsafe(self._schedule, feed)

    def forget(self, feed: str) -> None:
        """Remove the deleted *feed* from memory; in the event loop."""
        self._begun.discard(feed)

    def stop(self) -> None:
        """Schedule no more slices; `Writer.stop` waits for the slice in progress."""
        self._stopped = True

    def _schedule(self, feed: str) -> None:
        task = self._writer.loop.create_task(self._run(feed))
        self._slices.add(task)
        task.add_done_callback(self._slices.discard)

    async def _run(self, feed: str) -> None:
        self._due.discard(feed)  # before the slice, which wakes the feed again if pages are left
        with self._retries.run(feed):
            await self._writer.write(partial(self._slice, feed))
            self._on_appended(feed)

    def _slice(self, feed: str) -> None:
        self._begun.discard(feed)
        until_ms = self._follower.runtime.steady() + SLICE_MS
        self._follower.run(feed, self._handler, until_ms=until_ms)


def _following(checkpoint: int, pages: Sequence[Page]) -> tuple[Sequence[Page], int]:
    """Return the *pages* that follow *checkpoint* directly, and the number of their operations.

    The result ends at the first hole, and before `COMMIT_OPERATIONS_MAX` is exceeded.
    """
    operations = 0
    for at, page in enumerate(pages):
        count = len(page.lines)
        is_large = at and operations + count > COMMIT_OPERATIONS_MAX
        if is_large or page.number - page.skipped != checkpoint + 1:
            return pages[:at], operations
        checkpoint, operations = page.number, operations + count
    return pages, operations
