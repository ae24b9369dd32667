"""Live streams of one process: one reader of the log for all, and copies that are read ahead."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import NoReturn

import pytest

from tests.fakes import MemoryFollowers, MemoryLog, MemoryState
from tests.unit.core.scene import FEED, NOW, Scene, line, op, page
from tidings.core import limits
from tidings.core.auth.guard import Allowed
from tidings.core.catchup.sse import Stream
from tidings.core.counters import StreamCounter
from tidings.core.errors import Unavailable
from tidings.core.log.reader import Reader, Run
from tidings.core.model.pages import Page
from tidings.core.settings.values import Admission, Ended
from tidings.core.state.rows import Lines, Row, StateStore
from tidings.http.streams import tail_poller
from tidings.http.streams.row_prefetch import ReadAhead
from tidings.http.streams.tail_poller import (
    HEARTBEAT_MS,
    POLL_S,
    Chunks,
    FixedInterval,
    LiveStream,
    TailPoller,
)

LONG_S = 60.0
NO_TIME: dict[str, str | None] = {}


class Connection:
    """Implements `WriteNow`: keeps what was written; takes nothing if *full*."""

    def __init__(self) -> None:
        self.full = False
        self.frames: list[bytes] = []
        self.counter = StreamCounter()

    def write(self, frame: bytes) -> bool:
        if not self.full:
            self.frames.append(frame)
        return not self.full

    @property
    def events(self) -> int:
        return self.counter.sent


class Signal:
    """Implements `Notifications`."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.pages: list[Page] = []

    async def wait(self) -> list[Page]:
        await self.event.wait()
        self.event.clear()
        pages, self.pages = self.pages, []
        return pages

    def look(self) -> None:
        self.event.set()

    def mark_written(self, streams: int) -> None:
        pass

    def close(self) -> None:
        pass


class Poller(TailPoller):
    """Reads the log of *scene* when the test asks for it; raises *error* instead if it *fails*."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.error = scene, Exception()
        self.fails, self.signal, self.reads = False, Signal(), list[int]()
        self.limit: int | None = None  # pages per read
        super().__init__(self.read_log, self.signal)

    def read_log(self, after: int) -> Run:
        self.reads.append(after)
        if self.fails:
            self.fails = False
            raise self.error
        return self.scene.reader.read(FEED, after, self.limit)

    async def tell(self, *pages: Page) -> None:
        """Return when the log was read to its end, or could not be read. Pass *pages* with it."""
        fails = self.fails
        self.signal.pages += pages
        self.signal.look()
        async with asyncio.timeout(LONG_S):
            while self._looking if fails else self._tail.last < self.scene.log.head(FEED):
                await asyncio.sleep(0.001)


def play(scene: Scene, act: Callable[[Poller], Awaitable[None]]) -> None:
    async def run() -> None:
        await act(Poller(scene))

    asyncio.run(run())


def opened(scene: Scene, query: dict[str, str | None] = NO_TIME, *, lines: bool = False) -> Stream:
    return scene.streamer.open(FEED, "now", query, lines=lines)


def joined(poller: Poller, stream: Stream) -> tuple[LiveStream, Connection]:
    connection = Connection()
    live = LiveStream(stream, connection.counter, connection.write)
    assert live.begin()
    poller.join(live)
    return live, connection


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.post(op("before"))
    scene.project()
    return scene


def test_a_page_is_encoded_once_for_streams_of_one_form(scene: Scene) -> None:
    """The very same bytes for them; others have their own filter or format."""

    async def act(poller: Poller) -> None:
        streams = [opened(scene), opened(scene), opened(scene, {"types": "user"})]
        streams += [opened(scene, lines=True), opened(scene, {"format": "cloudevents"})]
        all_, again, none, lines, cloud = (joined(poller, stream)[1] for stream in streams)
        scene.post(op("a"), op("b"))
        await poller.tell()
        assert all_.frames[0] is again.frames[0]
        assert all_.frames[0].count(b"\nevent: update\n") == all_.events == 2
        assert (none.frames, none.events) == ([], 0)
        assert lines.events == cloud.events == 2
        assert len({*all_.frames, *lines.frames, *cloud.frames}) == 3
        assert {stream.progress.page for stream in streams} == {scene.log.head(FEED)}

    play(scene, act)


def test_committed_pages_are_not_read(scene: Scene) -> None:
    """The log is read only if a page is missing between those in memory and the committed ones."""

    async def act(poller: Poller) -> None:
        _, connection = joined(poller, opened(scene))
        await poller.tell()
        while not poller.reads:
            await asyncio.sleep(0.001)
        first, second = scene.post(op("a")), scene.post(op("b"), op("c"))
        await poller.tell(first, second)
        third = scene.post(op("d"))
        await poller.tell(second, third)  # commits in two threads may arrive in any order
        assert len(poller.reads) == 1
        missing, fifth = scene.post(op("e")), scene.post(op("f"))
        await poller.tell(fifth)
        assert poller.reads[1:] == [third.number]
        scene.post(op("g"))
        await poller.tell(missing)
        assert connection.events == 7
        text = b"".join(connection.frames)
        found = [text.index(b'"id":"%c"' % name) for name in b"abcdefg"]
        assert found == sorted(found)

    play(scene, act)


def test_it_reads_on_if_a_read_stopped_early(scene: Scene) -> None:
    """All pages have been notified already, and the next notification may be far away."""

    async def act(poller: Poller) -> None:
        _, connection = joined(poller, opened(scene))
        await poller.tell()
        poller.limit = 1
        for name in "abc":
            scene.post(op(name))
        await poller.tell()
        assert connection.events == 3

    play(scene, act)


@pytest.mark.parametrize(("slice_", "slice_s", "first"), [(2, inf, 2), (200, 0, 1)])
def test_many_streams_leave_time_for_others_and_may_leave_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, slice_: int, slice_s: float, first: int
) -> None:
    """They are written to in slices; a stream that leaves between two of them gets nothing more.

    A slice ends after a number of streams, or after a text that took long to build.
    """

    async def act(poller: Poller) -> None:
        monkeypatch.setattr(tail_poller, "SLICE", slice_)
        monkeypatch.setattr(tail_poller, "SLICE_S", slice_s)
        streams = [joined(poller, opened(scene)) for _ in range(5)]
        scene.post(op("a"))
        poller.signal.look()
        while not streams[0][1].frames:
            await asyncio.sleep(0)
        frames = [len(connection.frames) for _, connection in streams]
        assert frames == [1] * first + [0] * (5 - first)
        poller.part(streams[3][0])
        await asyncio.sleep(0.05)
        assert [len(connection.frames) for _, connection in streams] == [1, 1, 1, 0, 1]

    play(scene, act)


def test_a_feed_with_removed_parents_is_always_read(scene: Scene) -> None:
    """The removed parents of a page may not be stored yet when the page is committed."""

    async def act(poller: Poller) -> None:
        poller._selects = True
        joined(poller, opened(scene))
        for name in "ab":
            await poller.tell(scene.post(op(name)))
        assert len(poller.reads) >= 2

    play(scene, act)


def test_a_client_that_takes_no_more_continues_by_itself(scene: Scene) -> None:
    """It continues with the first event that it did not get; other clients are not affected."""

    async def act(poller: Poller) -> None:
        slow, quick = opened(scene), opened(scene)
        (live, connection), (_, other) = joined(poller, slow), joined(poller, quick)
        connection.full = True
        page = scene.post(op("a"))
        await poller.tell()
        assert live.detached.done()
        assert (connection.frames, other.events) == ([], 1)
        assert f"id: {page.id_prefix}" in slow.next().text
        poller.part(live)
        scene.post(op("b"))
        await poller.tell()
        assert (connection.frames, other.events) == ([], 2)

    play(scene, act)


def test_a_key_that_has_ended_receives_nothing_more(scene: Scene) -> None:
    """P17.7: the check is made before each write."""

    async def act(poller: Poller) -> None:
        stream = opened(scene)
        stream.access.allowed = Allowed(admission=Admission("k1"))
        live, connection = joined(poller, stream)
        scene.post(op("a"))
        await poller.tell()
        scene.configure(ended=(Ended("k1", scene.now_ms),))
        scene.post(op("b"))
        await poller.tell()
        assert live.detached.done()
        assert connection.events == 1

    play(scene, act)


def test_a_log_that_does_not_answer_ends_no_stream_silently(scene: Scene) -> None:
    """Each stream reads for itself, and so gets the error; it may join again."""

    async def act(poller: Poller) -> None:
        poller.error = Unavailable("no answer")
        live, connection = joined(poller, opened(scene))
        await poller.tell()
        poller.fails = True
        await poller.tell()
        assert live.detached.done()
        poller.part(live)
        assert live.begin()
        poller.join(live)
        scene.post(op("a"))
        await poller.tell()
        assert connection.events == 1

    play(scene, act)


def test_a_check_that_fails_stalls_no_other_stream(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stream continues by itself, and so the one with the error learns it; others rejoin."""

    async def act(poller: Poller) -> None:
        bad, good = opened(scene), opened(scene)
        bad.access.allowed = Allowed(admission=Admission("k1"))
        (first, nothing), (second, connection) = joined(poller, bad), joined(poller, good)

        def fail(_: str) -> NoReturn:
            raise Unavailable("no answer")

        monkeypatch.setattr(scene.profiles, "profile", fail)
        scene.post(op("a"))
        await poller.tell()
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(first.detached, second.detached)
        for each in (first, second):
            poller.part(each)
        assert second.begin()
        poller.join(second)
        scene.post(op("b"))
        await poller.tell()
        assert (nothing.events, connection.events) == (0, 2)

    play(scene, act)


def test_nobody_reads_for_streams_that_have_left(scene: Scene) -> None:
    """The same holds for streams that wait."""

    async def act(poller: Poller) -> None:
        live, connection = joined(poller, opened(scene))
        poller.part(live)
        scene.post(op("a"))
        poller.signal.look()
        await asyncio.sleep(0.05)
        assert poller._looking is None
        assert connection.frames == []

    play(scene, act)


@pytest.mark.parametrize("query", [{"leave": "true", "parents": "p"}, {}])
def test_only_streams_that_memory_can_serve_join(
    scene: Scene, query: dict[str, str | None]
) -> None:
    """A stream does not join with leaves, which need reads, in a copy of the state, or without a
    connection to write to.
    """

    async def act(_: Poller) -> None:
        scene.configure(leave=True)
        stream = opened(scene, query) if query else scene.streamer.open(FEED, "0")
        assert not LiveStream(stream, StreamCounter(), Connection().write).begin()
        assert not LiveStream(opened(scene), StreamCounter(), None).begin()

    play(scene, act)


def test_silence_is_counted_from_the_last_event(scene: Scene) -> None:
    """A busy stream therefore sends no heartbeat."""

    async def act(poller: Poller) -> None:
        live, _ = joined(poller, opened(scene))
        live._sent_s -= HEARTBEAT_MS / 1000
        assert live.silent_ms <= 0
        scene.post(op("a"))
        await poller.tell()
        assert live.silent_ms > 0
        assert live.sent == live.stream.progress

    play(scene, act)


WAIT_S = 20.0


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
        async with asyncio.timeout(WAIT_S):
            await scene(log, TailPoller(log.read, FixedInterval()))

    log = Log()
    asyncio.run(play())
    return log


def test_nothing_is_read_for_a_client_that_has_left(scene: Scene) -> None:
    """Its read may still wait for a thread."""
    scene.post(op("a"))
    stream = scene.streamer.open(FEED, "0000000000000000007fffff")
    begun, busy = stream.progress, threading.Event()

    async def leave(poller: Poller) -> None:
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        loop.set_default_executor(threads)
        loop.run_in_executor(None, busy.wait)
        chunks, gone = Chunks(stream, poller), loop.create_future()
        loop.call_later(0.01, gone.set_result, None)
        assert await chunks.next(gone) is None
        chunks.stop()
        for _ in range(3):  # iterations of the loop, in which the read is cancelled
            await asyncio.sleep(0)
        busy.set()
        await asyncio.to_thread(lambda: None)
        assert stream.progress is begun

    play(scene, leave)


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_all_are_woken_by_one_read() -> None:
    """A hundred streams wait; the page is read once, and all get it from memory."""

    async def scene(log: Log, poller: TailPoller) -> None:
        waiting = [
            asyncio.ensure_future(poller.wait(0, never(), timeout_s=WAIT_S)) for _ in range(100)
        ]
        await asyncio.sleep(POLL_S / 2)
        log.append(1)
        await asyncio.gather(*waiting)
        assert poller.tail is not None
        assert [each.number for each in poller.tail.after(0)] == [1]

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
                assert on.wait(WAIT_S)
            return run

        poller = TailPoller(read, OneNotification())
        left = never()
        before = asyncio.ensure_future(poller.wait(0, left, WAIT_S))
        while not log.reads:  # and that finds nothing
            await asyncio.sleep(0.001)
        left.set_result(None)
        await before
        log.append(1)
        poller._notifications.look()
        gone = never()
        first = asyncio.ensure_future(poller.wait(0, gone, WAIT_S))
        await asyncio.to_thread(reading.wait, WAIT_S)
        gone.set_result(None)
        await first
        on.set()
        async with asyncio.timeout(WAIT_S):
            await poller.wait(0, never(), timeout_s=10 * WAIT_S)
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
        left, stays = never(), asyncio.ensure_future(poller.wait(0, never(), timeout_s=WAIT_S))
        leaving = asyncio.ensure_future(poller.wait(0, left, timeout_s=WAIT_S))
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
        await poller.wait(0, never(), timeout_s=WAIT_S)
        await poller.wait(0, never(), timeout_s=WAIT_S)

    assert run(scene).reads == [0]


def test_it_begins_anew_after_a_pause() -> None:
    """Pages that were read long ago are dropped: the log may have advanced far since."""

    async def scene(log: Log, poller: TailPoller) -> None:
        assert poller.tail is None
        log.append(1)
        await poller.wait(0, never(), timeout_s=WAIT_S)
        assert poller.tail is not None
        poller._read_s -= 60
        assert poller.tail is None
        log.append(9)
        await poller.wait(8, never(), timeout_s=WAIT_S)
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
        await poller.wait(0, never(), timeout_s=WAIT_S)
        assert poller.tail.last == 2

    run(scene)


def test_an_error_reaches_all_and_the_next_may_try_again() -> None:
    """Each stream ends and its client comes back."""

    async def scene(log: Log, poller: TailPoller) -> None:
        log.fails = True
        waiting = [poller.wait(0, never(), timeout_s=WAIT_S) for _ in range(3)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in answers] == [Unavailable] * 3
        log.fails = False
        log.append(1)
        await poller.wait(0, never(), timeout_s=WAIT_S)

    run(scene)


ROWS = 700


class Slow(MemoryState):
    """Records the reads that were begun, and blocks them until *go* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, str | None]] = []
        self.go, self.fails = threading.Event(), False
        self.go.set()

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        self.begun.append((bucket, after))
        assert self.go.wait(60)
        if self.fails:
            raise Unavailable("no answer")
        return super().lines(feed, bucket, after)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Return a state whose buckets take several reads each."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 1_000)
    state = Slow()
    state.write(FEED, [Row(f"video/{n}", 1, n, NOW, line(f"{n}")) for n in range(ROWS)])
    return state


def whole(states: StateStore) -> list[str]:
    """Return all lines, as a copy reads them."""
    lines: list[str] = []
    for bucket in range(limits.BUCKETS):
        read = states.lines(FEED, bucket)
        lines += read.lines
        while read.after is not None:
            read = states.lines(FEED, bucket, read.after)
            lines += read.lines
    return lines


def test_the_same_in_the_same_order(state: Slow) -> None:
    """No row is read twice."""
    plain = whole(state)
    expected, state.begun = sorted(state.begun, key=str), []

    assert whole(ReadAhead()(state)) == plain
    assert sorted(state.begun, key=str) == expected
    assert len(plain) == ROWS


def test_the_next_buckets_are_asked_for_at_once(state: Slow) -> None:
    """They are read in parallel with the current one, before it has been answered; at most two of
    them.
    """
    copy = ReadAhead()(state)
    state.go.clear()
    reading = threading.Thread(target=copy.lines, args=(FEED, 3))
    reading.start()
    try:
        while len(state.begun) < 3:
            reading.join(0.01)
        reading.join(0.05)
        assert sorted(bucket for bucket, _ in state.begun) == [3, 4, 5]
    finally:
        state.go.set()
        reading.join()


def test_an_error_is_told_where_its_rows_were_due(state: Slow) -> None:
    """The earlier read succeeds; the next attempt reads again."""
    copy = ReadAhead()(state)
    first = copy.lines(FEED, 0)
    while first.after is not None:
        first = copy.lines(FEED, 0, first.after)
    state.fails = True
    with pytest.raises(Unavailable):
        for bucket in range(1, 5):
            copy.lines(FEED, bucket)


def test_few_copies_at_a_time(state: Slow) -> None:
    """The next one reads for itself, until one is complete or forgotten."""
    ahead = ReadAhead(copies=2)
    one, two = ahead(state), ahead(state)
    assert ahead(state) is state

    assert len(whole(one)) == ROWS
    three = ahead(state)
    assert three is not state and ahead(state) is state

    del two
    gc.collect()
    assert ahead(state) is not state
    assert len(whole(one)) == len(whole(three)) == ROWS
