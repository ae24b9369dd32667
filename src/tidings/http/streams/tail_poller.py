"""
One reader of the end of a feed's log, for every stream of this process that waits there.

It reads only while somebody waits, at the pace at which a single stream would read for itself;
so a Lambda with one client costs what it did, and a thousand streams cost no more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tidings.core.catchup.tail_cache import Tail
from tidings.core.log.reader import Run

POLL_S = 0.2  # a consumer hears within a second; five reads a second cost 5 RRU while it listens
FRESH_S = 5 * POLL_S  # what was read longer ago may be far from the end by now


class News(Protocol):
    """How a poller learns that it is worth while to read."""

    async def wait(self) -> None:
        """Return when something may have come since the last time."""

    def look(self) -> None:
        """Something may be there already: the next wait is none."""


class Pace:
    """Implements `News` where nobody notifies this process."""

    async def wait(self) -> None:
        await asyncio.sleep(POLL_S)

    def look(self) -> None:
        """It looks all the same."""


Listen = Callable[[str], News]  # for news of a feed


def at_a_pace(feed: str) -> News:
    """Implements `Listen`: the same for every feed."""
    return Pace()


class TailPoller:
    """*read*, called in a thread when *news* say so, gives what follows a page of the feed."""

    def __init__(self, read: Callable[[int], Run], news: News) -> None:
        self._read, self._news = read, news
        self._tail = Tail()
        self._read_s = float("-inf")
        self._waiting = 0
        self._looking: asyncio.Task[None] | None = None
        # Of its own: the streams that catch up may keep all the others busy.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lookout")

    @property
    def tail(self) -> Tail | None:
        """What was read a moment ago; None where nobody has looked."""
        return self._tail if self._is_fresh else None

    async def wait(self, page: int, gone: asyncio.Future[Any], timeout_s: float) -> None:
        """
        Return when something follows *page*, which the caller found to be the end, or *gone* is
        done, or after *timeout_s*.

        Raises:
            Unavailable: the log does not answer.
        """
        if not self._is_looking and not self._is_fresh:
            self._tail.start(page)
            self._read_s = self._now_s()
            self._news.look()
        if self._tail.last > page:
            return
        if not self._is_looking:
            self._looking = asyncio.ensure_future(self._look())
        await self._wait_with_others({self._looking, gone}, timeout_s)

    async def _wait_with_others(self, awaited: set[Any], timeout_s: float) -> None:
        self._waiting += 1
        try:
            done, _ = await asyncio.wait(
                awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
        finally:
            self._waiting -= 1
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None  # it is not done before the loop's next turn

    async def _look(self) -> None:
        """Until there is news, for all who wait at once."""
        loop = asyncio.get_running_loop()
        news = False
        while not news:
            await self._news.wait()
            try:
                run = await loop.run_in_executor(self._thread, self._read, self._tail.last)
            except BaseException:  # also if all who waited left: the news is for the next one
                self._news.look()
                raise
            self._read_s = self._now_s()
            news = self._tail.extend(run)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    @property
    def _is_fresh(self) -> bool:
        return self._now_s() - self._read_s < FRESH_S

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
