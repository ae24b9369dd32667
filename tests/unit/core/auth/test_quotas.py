"""Quotas of keys: the request rate and the number of open streams."""

from __future__ import annotations

import pytest

from tests.fakes import MemoryKeyUsage
from tests.unit.core.scene import FEED, NOW, Scene, shown, unavailable
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import PresentedKey
from tidings.core.auth.quotas import RateLimiter
from tidings.core.catchup.sse import Stream
from tidings.core.errors import TooManyRequests
from tidings.core.settings.profiles import Profile

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

    streams[0].close()
    streams[0].close()  # the second time is nothing
    opened(scene, given)
    with pytest.raises(TooManyRequests):
        opened(scene, given)


def test_what_says_nothing_has_a_bound_too(scene: Scene) -> None:
    """A key of the release before."""
    given = scene.key(Role.READ)
    for _ in range(limits.KEY_STREAMS):
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
        stream.renew()
        with pytest.raises(TooManyRequests):
            opened(scene, given)

    stream.close()
    stream.renew()
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
    assert [opened(scene, None).hold for _ in range(limits.KEY_STREAMS + 1)][-1] is None
