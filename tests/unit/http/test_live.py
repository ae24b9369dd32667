"""Streams at the end of the log: the poller of their feed writes to their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import NoReturn

import pytest

from tests.unit.core.scene import FEED, Scene, op
from tidings.core.auth.guard import Allowed
from tidings.core.catchup.sse import Stream
from tidings.core.counters import StreamCounter
from tidings.core.errors import Unavailable
from tidings.core.log.reader import Run
from tidings.core.model.pages import Page
from tidings.core.settings.values import Admission, Ended
from tidings.http.streams import tail_poller
from tidings.http.streams.tail_poller import HEARTBEAT_MS, LiveStream, TailPoller

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
