"""Every read that is made with a key counts against the key's rate, on every kind of request."""

from __future__ import annotations

import pytest

from tests.unit.core.auth.test_quotas import opened
from tests.unit.core.scene import FEED, Scene, op, shown
from tidings.core import limits
from tidings.core.auth.guard import READ, Role
from tidings.core.auth.keys import PresentedKey
from tidings.core.auth.quotas import RateLimiter
from tidings.core.catchup.sse import Stream
from tidings.core.changeagent.list import Query
from tidings.core.errors import TooManyRequests
from tidings.core.model.filters import Filter
from tidings.core.triton.objects import ObjectReader
from tidings.core.websocket.session import State

RATE = 1
WINDOW = RATE * limits.KEY_WINDOW_MS // 1000  # requests
OBJECTS = 800
STATE = 3 * WINDOW  # requests that reading all of the state takes
NARROW = Filter(frozenset({"nothing of this type"}))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Create a feed whose state and whose log each take three windows of RATE to read."""
    scene = Scene()
    scene.now_ms -= scene.now_ms % limits.KEY_WINDOW_MS
    for first in range(0, OBJECTS, 50):
        scene.post(*(op(f"x{n}", data="." * 100) for n in range(first, first + 50)))
    scene.project()
    read = sum(map(len, scene.rows().values()))
    monkeypatch.setattr(limits, "KEY_READ_SIZE", read // STATE)
    return scene


def key(scene: Scene, rate: int = RATE) -> PresentedKey:
    return scene.key(Role.READ, bound=NARROW, rate=rate)


def to_the_end(scene: Scene, *streams: Stream) -> list[str]:
    """Read all streams in turn, each with the waits it asks for; return the event names of the last
    one.
    """
    names: list[str] = []
    left = list(streams)
    while left:
        chunks = [(stream, stream.next()) for stream in left]
        for stream, chunk in chunks:
            if stream is streams[-1]:
                names += [event.name for part in chunk.parts for event in part.events()]
        left = [stream for stream, chunk in chunks if not chunk.at_frontier]
        scene.now_ms += min(chunk.wait_ms for _, chunk in chunks)
    return names


def subscribe(scene: Scene, given: PresentedKey, name: str = "c") -> str:
    scene.subscribe(name, password=given.encode(), **{"from": "0"})
    scene.waker.replays.clear()
    return name


def test_a_copy_by_a_narrow_key_takes_its_time(large: Scene) -> None:
    """It reads as fast as the rate allows and completes, although no object matches its key."""
    begun = large.now_ms
    assert to_the_end(large, opened(large, key(large), "0")) == ["reset", "live"]
    assert 2 * limits.KEY_WINDOW_MS <= large.now_ms - begun <= 3 * limits.KEY_WINDOW_MS


@pytest.mark.parametrize("processes", [1, 5])
def test_many_streams_read_no_more_than_one(large: Scene, processes: int) -> None:
    """Reads that exceed the rate together count in the following windows."""
    given, streams = key(large), list[Stream]()
    meters = [RateLimiter(large.key_usage, large.clock) for _ in range(processes)]
    for n in range(5):
        streams.append(opened(large, given, "0"))
        streams[-1].charge.meter = meters[n % processes]
        large.now_ms += 1000
    begun = large.now_ms
    to_the_end(large, *streams)
    assert large.now_ms - begun >= (5 * STATE // WINDOW - 2) * limits.KEY_WINDOW_MS


def test_what_a_copy_took_is_not_left_for_requests(large: Scene) -> None:
    """A request of another kind is refused too."""
    given = key(large)
    stream = opened(large, given, "0")
    while not stream.next().wait_ms:
        pass
    with pytest.raises(TooManyRequests) as refused:
        opened(large, given, "now")
    assert refused.value.status == 429


@pytest.mark.parametrize("rate", [0, 10_000])
def test_who_has_room_waits_for_nothing(large: Scene, rate: int) -> None:
    """A key without a rate is charged nothing, nor is a password."""
    begun = large.now_ms
    to_the_end(large, opened(large, None, "0"))  # first: a key closes the feed
    to_the_end(large, opened(large, key(large, rate), "0"))
    assert large.now_ms == begun


def test_a_small_copy_is_its_request(large: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If little is read, only the request itself counts."""
    monkeypatch.setattr(limits, "KEY_READ_SIZE", 1024 * 1024)
    begun, given = large.now_ms, key(large)
    for _ in range(WINDOW - 1):
        to_the_end(large, opened(large, given, "0"))
        large.now_ms += 1000
    assert large.now_ms - begun == (WINDOW - 1) * 1000


def test_the_log_is_charged_as_the_state(large: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that begins at an old page is charged for all that it reads, too."""
    pages = large.log.read(FEED, 0)
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 1)
    size = sum(page.size for page in pages)
    monkeypatch.setattr(limits, "KEY_READ_SIZE", size // STATE)
    begun, start = large.now_ms, pages[0].end.encode()
    to_the_end(large, opened(large, key(large), start))
    assert large.now_ms - begun >= limits.KEY_WINDOW_MS


def test_a_replay_ends_where_the_rate_does(large: Scene) -> None:
    """It neither waits in its function nor wakes anything; the sweep wakes it, and it resumes."""
    name, begun = subscribe(large, key(large)), large.now_ms
    large.replayer.run(name)
    stopped = large.connection(name)
    assert (large.now_ms, large.waker.replays) == (begun, [])
    assert (stopped.state, stopped.runner) == (State.CATCHING_UP, "")
    runs = 0
    while "live" not in large.events(name):
        large.now_ms += limits.SWEEP_EVERY_MS
        large.sweeper.run()
        assert large.waker.replays == [name]
        large.waker.replays.clear()
        large.replayer.run(name)
        runs += 1
    assert runs == 2 and large.events(name) == ["reset", "live"]


def test_a_replay_reads_nothing_while_the_rate_is_exceeded(large: Scene) -> None:
    """This holds for repeated wake-ups, and for several connections with the key."""
    given = key(large)
    first = subscribe(large, given)
    large.now_ms += 1000
    second = subscribe(large, given, "d")
    large.replayer.run(first)
    stopped = large.connection(first).progress, large.connection(second).progress
    for name in (first, second, first):
        large.replayer.run(name)
    assert (large.connection(first).progress, large.connection(second).progress) == stopped


def test_who_leaves_is_let_go_whatever_the_rate(large: Scene) -> None:
    """An unsubscribe reads nothing, so it is processed although the rate is exceeded."""
    name = subscribe(large, key(large))
    large.replayer.run(name)
    large.say(name, action="unsubscribe")
    large.replayer.run(name)
    assert large.connection(name).state is State.OPEN


def test_a_page_of_objects_is_charged_behind_it(large: Scene) -> None:
    """The request that exceeds the rate is answered; later requests are refused until there is
    room."""
    objects, given = ObjectReader(large.state, large.meter.charge_for), shown(key(large))
    assert objects.page(FEED, "", "", READ.admit(large.guard, FEED, given)).objects == []
    for _ in range(STATE // WINDOW):
        with pytest.raises(TooManyRequests):
            READ.admit(large.guard, FEED, given)
        large.now_ms += limits.KEY_WINDOW_MS
    READ.admit(large.guard, FEED, given)


def test_a_list_says_what_was_read_for_it(large: Scene) -> None:
    """The pages that were read and skipped count too: they are the cost of a search with few
    results."""
    listing = large.lister().list(FEED, Query(bound=NARROW))
    assert listing.entries == [] and listing.at_end
    assert listing.read == sum(page.size for page in large.log.read(FEED, 0))
