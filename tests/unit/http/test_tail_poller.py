"""The poller: one reader of a feed's end for all who wait there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from tests.fakes import MemoryFollowers, MemoryLog
from tests.unit.core.scene import FEED, NOW, page
from tidings.core.errors import Unavailable
from tidings.core.log.reader import Reader, Run
from tidings.core.model.pages import Page
from tidings.http.streams.tail_poller import POLL_S, FixedInterval, TailPoller

LONG_S = 20.0


class Log:
    """A log in memory that counts how often it is read, and may fail."""

    def __init__(self) -> None:
        self.pages = MemoryLog()
        self.reads: list[int] = []
        self.fails = False

    def read(self, after: int) -> Run:
        self.reads.append(after)
        if self.fails:
            raise Unavailable("no answer")
        reader = Reader(
            log=self.pages, checkpoints=MemoryFollowers(), clock=lambda: NOW, count=lambda *_: None
        )
        return reader.read(FEED, after)

    def append(self, number: int) -> Page:
        written = page(number, f"line {number}")
        self.pages.put(FEED, written)
        return written


def run(scene: Callable[[Log, TailPoller], Awaitable[None]]) -> Log:
    async def play() -> None:
        async with asyncio.timeout(LONG_S):
            await scene(log, TailPoller(log.read, FixedInterval()))

    log = Log()
    asyncio.run(play())
    return log


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_all_are_woken_by_one_read() -> None:
    """A hundred streams wait; the page is read once, and all get it from memory."""

    async def scene(log: Log, poller: TailPoller) -> None:
        waiting = [
            asyncio.ensure_future(poller.wait(0, never(), timeout_s=LONG_S)) for _ in range(100)
        ]
        await asyncio.sleep(POLL_S / 2)
        log.append(1)
        await asyncio.gather(*waiting)
        assert poller.tail is not None
        assert [held.page.number for held in poller.tail.after(0)] == [1]

    assert run(scene).reads == [0]


class OneNotification:
    """Implements `Notifications`: reports new pages once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> list[Page]:
        await self.event.wait()
        self.event.clear()
        return []

    def look(self) -> None:
        self.event.set()

    def mark_written(self, streams: int) -> None:
        pass

    def close(self) -> None:
        pass


def test_who_leaves_during_a_read_delays_no_one() -> None:
    """The notification that the read was for is not lost: the next waiting stream gets it."""

    async def play() -> None:
        log, reading, on = Log(), threading.Event(), threading.Event()

        def read(after: int) -> Run:
            run = log.read(after)
            if len(log.reads) == 2:
                reading.set()
                assert on.wait(LONG_S)
            return run

        poller = TailPoller(read, OneNotification())
        left = never()
        before = asyncio.ensure_future(poller.wait(0, left, LONG_S))
        while not log.reads:  # and that finds nothing
            await asyncio.sleep(0.001)
        left.set_result(None)
        await before
        log.append(1)
        poller._notifications.look()
        gone = never()
        first = asyncio.ensure_future(poller.wait(0, gone, LONG_S))
        await asyncio.to_thread(reading.wait, LONG_S)
        gone.set_result(None)
        await first
        on.set()
        async with asyncio.timeout(LONG_S):
            await poller.wait(0, never(), timeout_s=10 * LONG_S)
        assert poller.tail is not None and poller.tail.last == 1

    asyncio.run(play())


def test_it_looks_five_times_a_second_and_only_while_somebody_waits() -> None:
    """This is the cost of a single client; without clients nothing is read."""

    async def scene(log: Log, poller: TailPoller) -> None:
        await poller.wait(0, never(), timeout_s=POLL_S * 3.5)
        seen = len(log.reads)
        assert 1 <= seen <= 3
        await asyncio.sleep(POLL_S * 3)
        assert len(log.reads) == seen

    run(scene)


def test_a_client_that_leaves_wakes_nobody_else() -> None:
    """The others still wait, and get the next page."""

    async def scene(log: Log, poller: TailPoller) -> None:
        left, stays = never(), asyncio.ensure_future(poller.wait(0, never(), timeout_s=LONG_S))
        leaving = asyncio.ensure_future(poller.wait(0, left, timeout_s=LONG_S))
        await asyncio.sleep(0)
        left.set_result(None)
        await leaving
        assert not stays.done()
        log.append(1)
        await stays

    run(scene)


def test_who_is_behind_does_not_wait() -> None:
    """Pages from between the read and the wait are found at once."""

    async def scene(log: Log, poller: TailPoller) -> None:
        log.append(1)
        await poller.wait(0, never(), timeout_s=LONG_S)
        await poller.wait(0, never(), timeout_s=LONG_S)

    assert run(scene).reads == [0]


def test_it_begins_anew_after_a_pause() -> None:
    """Pages that were read long ago are dropped: the log may have advanced far since."""

    async def scene(log: Log, poller: TailPoller) -> None:
        assert poller.tail is None
        log.append(1)
        await poller.wait(0, never(), timeout_s=LONG_S)
        assert poller.tail is not None
        poller._read_s -= 60
        assert poller.tail is None
        log.append(9)
        await poller.wait(8, never(), timeout_s=LONG_S)
        assert poller.tail is not None
        assert poller.tail.last == 9 and not poller.tail.reaches(1)

    assert run(scene).reads == [0, 8]


def test_it_stops_before_a_hole() -> None:
    """Pages after a missing page are not sent."""

    async def scene(log: Log, poller: TailPoller) -> None:
        log.append(2)
        await poller.wait(0, never(), timeout_s=POLL_S * 2.5)
        assert poller.tail is not None and poller.tail.last == 0
        log.append(1)
        await poller.wait(0, never(), timeout_s=LONG_S)
        assert poller.tail.last == 2

    run(scene)


def test_an_error_reaches_all_and_the_next_may_try_again() -> None:
    """Each stream ends and its client comes back."""

    async def scene(log: Log, poller: TailPoller) -> None:
        log.fails = True
        waiting = [poller.wait(0, never(), timeout_s=LONG_S) for _ in range(3)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in answers] == [Unavailable] * 3
        log.fails = False
        log.append(1)
        await poller.wait(0, never(), timeout_s=LONG_S)

    run(scene)
