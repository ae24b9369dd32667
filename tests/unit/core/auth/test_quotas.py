"""Quotas of keys: the request rate and the number of open streams."""

from __future__ import annotations

import pytest

from tests.fakes import MemoryKeyUsage
from tests.unit.core.scene import FEED, NOW, Scene, op, shown, unavailable
from tidings.core import limits
from tidings.core.auth.guard import READ, Role
from tidings.core.auth.keys import PresentedKey
from tidings.core.auth.quotas import RateLimiter
from tidings.core.catchup.sse import Stream
from tidings.core.changeagent.list import Query
from tidings.core.errors import TooManyRequests
from tidings.core.model.filters import Filter
from tidings.core.settings.profiles import Profile
from tidings.core.triton.objects import ObjectReader
from tidings.core.websocket.session import State

RATE = 5


class Counting(MemoryKeyUsage):
    writes = 0

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        self.writes += 1
        return super().add(feed, name, window, requests)


def served(meter: RateLimiter, requests: int, key: str = "a") -> int:
    """Return how many of *requests* at once are not refused."""
    count = 0
    for _ in range(requests):
        try:
            meter.spend(FEED, key, RATE)
        except TooManyRequests:
            continue
        count += 1
    return count


def test_a_process_serves_its_rate_each_second(scene: Scene) -> None:
    """Each key has its own."""
    meter = RateLimiter(MemoryKeyUsage(), scene.clock)
    assert served(meter, 100) == RATE
    assert served(meter, 100, "b") == RATE
    scene.now_ms += 1000
    assert served(meter, 100) == RATE


def test_it_costs_a_write_a_second_at_most(scene: Scene) -> None:
    """This holds for any number of requests."""
    counts = Counting()
    meter = RateLimiter(counts, scene.clock)
    for _ in range(50):
        served(meter, RATE)
        scene.now_ms += 100
    assert counts.writes == 5


def test_a_window_of_a_clock_that_was_ahead_is_forgotten(scene: Scene) -> None:
    """The key may be used at its rate when that time comes."""
    meter, ahead_ms = RateLimiter(MemoryKeyUsage(), scene.clock), 2 * 3_600_000
    scene.now_ms += ahead_ms
    for _ in range(limits.KEY_WINDOW_MS // 1000):
        served(meter, RATE)
        scene.now_ms += 1
        served(meter, RATE)
        scene.now_ms += 999
    scene.now_ms -= ahead_ms
    assert served(meter, 1) == 1
    scene.now_ms += ahead_ms - limits.KEY_WINDOW_MS
    meter = RateLimiter(meter._counts, scene.clock)
    assert served(meter, 100) == RATE


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_all_processes_together_keep_to_it_within_a_window(scene: Scene, processes: int) -> None:
    """In ten seconds they allow ten times the rate, and in addition at most a second's rate for
    each process.
    """
    counts = MemoryKeyUsage()
    meters = [RateLimiter(counts, scene.clock) for _ in range(processes)]
    total = 0
    for _ in range(100):
        total += sum(served(meter, RATE) for meter in meters)
        scene.now_ms += limits.KEY_WINDOW_MS // 100
    assert 10 * RATE <= total <= 10 * RATE + processes * RATE


def test_who_is_refused_is_told_when_to_ask_again(scene: Scene) -> None:
    """In a second, or when the window is over."""
    counts = MemoryKeyUsage()
    scene.now_ms = NOW - NOW % limits.KEY_WINDOW_MS
    meter = RateLimiter(counts, scene.clock)
    served(meter, RATE)
    with pytest.raises(TooManyRequests) as refused:
        meter.spend(FEED, "a", RATE)
    assert refused.value.retry_after_s == 1
    counts.add(FEED, "a", scene.now_ms // limits.KEY_WINDOW_MS, 10 * RATE)
    scene.now_ms += 1500
    served(meter, 1)
    with pytest.raises(TooManyRequests) as refused:
        meter.spend(FEED, "a", RATE)
    assert refused.value.retry_after_s == 9


def test_a_window_begins_anew(scene: Scene) -> None:
    """Earlier use does not count."""
    counts = MemoryKeyUsage()
    counts.add(FEED, "a", scene.now_ms // limits.KEY_WINDOW_MS, 10 * RATE)
    meter = RateLimiter(counts, scene.clock)
    assert served(meter, 2) == 1  # the first one settles and reads the others' count
    scene.now_ms += limits.KEY_WINDOW_MS
    assert served(meter, 2) == 2


def test_nobody_is_refused_because_a_store_is_away(scene: Scene) -> None:
    """A failure of the store must not stop requests; each process then applies the rate by
    itself."""
    counts = MemoryKeyUsage()
    counts.add = unavailable  # type: ignore[method-assign]
    meter = RateLimiter(counts, scene.clock)
    assert served(meter, 100) == RATE
    assert charge(meter, 10**6) == 0


def test_memory_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that comes back after many others starts with an empty count; the others keep
    theirs."""
    monkeypatch.setattr(limits, "KEYS_KNOWN_MAX", 2)
    meter = RateLimiter(MemoryKeyUsage(), scene.clock)
    assert [served(meter, RATE, key) for key in ("a", "b", "c", "a")] == [RATE] * 4
    assert served(meter, 1, "c") == 0


def charge(meter: RateLimiter, requests: int) -> int:
    """Charge as much as *requests* cost; return how long the key has to wait then."""
    meter.charge(FEED, "a", RATE, requests * limits.KEY_READ_SIZE)
    return meter.wait_ms(FEED, "a", RATE)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_above_the_rate_counts_in_the_windows_behind(scene: Scene, processes: int) -> None:
    """This holds in the process that counted it, and in the others as soon as they read the
    count."""
    counts = MemoryKeyUsage()
    scene.now_ms -= scene.now_ms % limits.KEY_WINDOW_MS
    meters = [RateLimiter(counts, scene.clock) for _ in range(processes)]
    assert charge(meters[0], 25 * RATE) == limits.KEY_WINDOW_MS
    scene.now_ms += limits.KEY_WINDOW_MS
    assert all(meter.wait_ms(FEED, "a", RATE) for meter in meters)
    scene.now_ms += limits.KEY_WINDOW_MS
    assert not any(meter.wait_ms(FEED, "a", RATE) for meter in meters)
    assert counts.add(FEED, "a", scene.now_ms // limits.KEY_WINDOW_MS, 0) == 5 * RATE


def test_it_is_less_by_each_window_that_went_by(scene: Scene) -> None:
    """The excess shrinks by one window's rate per window, whether or not requests came and were
    refused.
    """
    for comes in (False, True):
        meter = RateLimiter(MemoryKeyUsage(), scene.clock)
        charge(meter, 45 * RATE)
        for _ in range(3):
            scene.now_ms += limits.KEY_WINDOW_MS
            if comes:
                assert served(meter, 1) == 0
        assert meter.wait_ms(FEED, "a", RATE) > 0
        scene.now_ms += limits.KEY_WINDOW_MS
        assert served(meter, RATE) == RATE


def test_what_makes_no_request_counts_with_the_next(scene: Scene) -> None:
    """Small reads add up for each key, so many clients with small reads cannot avoid the rate."""
    counts = Counting()
    meter = RateLimiter(counts, scene.clock)
    third = limits.KEY_READ_SIZE // 3 + 1
    assert [meter.charge(FEED, "a", RATE, third) for _ in range(4)] == [False, False, True, False]
    assert counts.writes == 1


def test_a_charge_is_one_write(scene: Scene) -> None:
    """A charge of any size is one write, and other processes see it at once."""
    counts = Counting()
    meter = RateLimiter(counts, scene.clock)
    served(meter, 1)
    assert charge(meter, 10**6) > 0
    assert counts.writes == 2


def opened(scene: Scene, given: PresentedKey | None, cursor: str = "now") -> Stream:
    return scene.streamer.open(FEED, cursor, given=shown(given) if given else None)


def test_a_key_holds_so_many_streams(scene: Scene) -> None:
    """The next one is refused until another ends; other keys and passwords are not concerned."""
    for _ in range(4):
        opened(scene, None)  # before there is a key, which closes the feed
    given, other = scene.key(Role.READ, streams=3), scene.key(Role.READ, streams=3)
    streams = [opened(scene, given) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(TooManyRequests, match="at most 3 streams open at once") as refused:
            opened(scene, given)
    assert (refused.value.status, refused.value.retry_after_s) == (429, limits.STREAM_HELD_RETRY_S)
    opened(scene, other)

    streams[0].access.close()
    streams[0].access.close()  # the second time is nothing
    opened(scene, given)
    with pytest.raises(TooManyRequests):
        opened(scene, given)


def test_the_hold_of_a_process_that_died_ends(scene: Scene) -> None:
    """It ends when no function that could serve the stream is alive any more."""
    given = scene.key(Role.READ, streams=1)
    opened(scene, given)
    scene.now_ms += limits.STREAM_HOLD_MS
    opened(scene, given)


def test_a_stream_that_lasts_is_counted_for_as_long_as_it_lasts(scene: Scene) -> None:
    """A server does not end streams: it renews their holds."""
    given = scene.key(Role.READ, streams=1)
    stream = opened(scene, given)
    for _ in range(4):
        scene.now_ms += limits.STREAM_HOLD_MS * 2 // 3
        stream.access.renew()
        with pytest.raises(TooManyRequests):
            opened(scene, given)

    stream.access.close()
    stream.access.renew()
    opened(scene, given)


def test_who_is_refused_holds_nothing(scene: Scene) -> None:
    """A request that is wrong for another reason takes no place."""
    given = scene.key(Role.READ, streams=1)
    for _ in range(3):
        with pytest.raises(Exception, match="cursor"):
            opened(scene, given, "no cursor")
    opened(scene, given)


def test_passwords_hold_without_a_bound(scene: Scene) -> None:
    """They are one for all: a bound would be that of the feed."""
    assert scene.profiles.save(FEED, Profile())
    for _ in range(limits.KEY_STREAMS + 1):
        opened(scene, None)


READ_RATE = 1
WINDOW = READ_RATE * limits.KEY_WINDOW_MS // 1000  # requests
OBJECTS = 800
STATE = 3 * WINDOW  # requests that reading all of the state takes
NARROW = Filter(frozenset({"nothing of this type"}))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Create a feed whose state and whose log each take three windows of READ_RATE to read."""
    scene = Scene()
    scene.now_ms -= scene.now_ms % limits.KEY_WINDOW_MS
    for first in range(0, OBJECTS, 50):
        scene.post(*(op(f"x{n}", data="." * 100) for n in range(first, first + 50)))
    scene.project()
    read = sum(map(len, scene.rows().values()))
    monkeypatch.setattr(limits, "KEY_READ_SIZE", read // STATE)
    return scene


def key(scene: Scene, rate: int = READ_RATE) -> PresentedKey:
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
        streams[-1].access.charge.meter = meters[n % processes]
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
