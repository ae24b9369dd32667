"""Metering: how many requests a key makes, over all processes."""

from __future__ import annotations

import pytest
from tidings.core import limits
from tidings.core.auth.rate_limit import Meter
from tidings.core.errors import TooManyRequests

from tests.core.scene import FEED, NOW, Scene, unavailable
from tests.fakes import MemoryKeyCounts

RATE = 5


class Counting(MemoryKeyCounts):
    writes = 0

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        self.writes += 1
        return super().add(feed, name, window, requests)


def served(meter: Meter, requests: int, key: str = "a") -> int:
    """How many of *requests* at once are not refused."""
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
    meter = Meter(MemoryKeyCounts(), scene.clock)
    assert served(meter, 100) == RATE
    assert served(meter, 100, "b") == RATE
    scene.now_ms += 1000
    assert served(meter, 100) == RATE


def test_it_costs_a_write_a_second_at_most(scene: Scene) -> None:
    """Whatever comes."""
    counts = Counting()
    meter = Meter(counts, scene.clock)
    for _ in range(50):
        served(meter, RATE)
        scene.now_ms += 100
    assert counts.writes == 5


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_all_processes_together_keep_to_it_within_a_window(scene: Scene, processes: int) -> None:
    """Ten times the rate in ten seconds, and what each has not settled: a second's at most."""
    counts = MemoryKeyCounts()
    meters = [Meter(counts, scene.clock) for _ in range(processes)]
    total = 0
    for _ in range(100):
        total += sum(served(meter, RATE) for meter in meters)
        scene.now_ms += limits.KEY_WINDOW_MS // 100
    assert 10 * RATE <= total <= 10 * RATE + processes * RATE


def test_who_is_refused_is_told_when_to_ask_again(scene: Scene) -> None:
    """In a second, or when the window is over."""
    counts = MemoryKeyCounts()
    scene.now_ms = NOW - NOW % limits.KEY_WINDOW_MS
    meter = Meter(counts, scene.clock)
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
    """Whatever was used before."""
    counts = MemoryKeyCounts()
    counts.add(FEED, "a", scene.now_ms // limits.KEY_WINDOW_MS, 10 * RATE)
    meter = Meter(counts, scene.clock)
    assert served(meter, 2) == 1  # the first one settles, and hears of the others
    scene.now_ms += limits.KEY_WINDOW_MS
    assert served(meter, 2) == 2


def test_nobody_is_refused_because_a_store_is_away(scene: Scene) -> None:
    """A rate is no reason to be down; the process keeps to it by itself."""
    counts = MemoryKeyCounts()
    counts.add = unavailable  # type: ignore[method-assign]
    meter = Meter(counts, scene.clock)
    assert served(meter, 100) == RATE
    assert charge(meter, 10**6) == 0


def test_memory_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is shown again after many others begins anew here, and not for all."""
    monkeypatch.setattr(limits, "KEYS_KNOWN_MAX", 2)
    meter = Meter(MemoryKeyCounts(), scene.clock)
    assert [served(meter, RATE, key) for key in ("a", "b", "c", "a")] == [RATE] * 4
    assert served(meter, 1, "c") == 0


def charge(meter: Meter, requests: int) -> int:
    """Charge what makes *requests*; how long the key has to wait then."""
    meter.charge(FEED, "a", RATE, requests * limits.KEY_READ_SIZE)
    return meter.wait_ms(FEED, "a", RATE)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_above_the_rate_counts_in_the_windows_behind(scene: Scene, processes: int) -> None:
    """In the process that counted it, and in others as soon as they hear of it."""
    counts = MemoryKeyCounts()
    scene.now_ms -= scene.now_ms % limits.KEY_WINDOW_MS
    meters = [Meter(counts, scene.clock) for _ in range(processes)]
    assert charge(meters[0], 25 * RATE) == limits.KEY_WINDOW_MS
    scene.now_ms += limits.KEY_WINDOW_MS
    assert all(meter.wait_ms(FEED, "a", RATE) for meter in meters)
    scene.now_ms += limits.KEY_WINDOW_MS
    assert not any(meter.wait_ms(FEED, "a", RATE) for meter in meters)
    assert counts.add(FEED, "a", scene.now_ms // limits.KEY_WINDOW_MS, 0) == 5 * RATE


def test_it_is_less_by_each_window_that_went_by(scene: Scene) -> None:
    """Who did not come meanwhile has paid as well; who came and was refused no less."""
    for comes in (False, True):
        meter = Meter(MemoryKeyCounts(), scene.clock)
        charge(meter, 45 * RATE)
        for _ in range(3):
            scene.now_ms += limits.KEY_WINDOW_MS
            if comes:
                assert served(meter, 1) == 0
        assert meter.wait_ms(FEED, "a", RATE) > 0
        scene.now_ms += limits.KEY_WINDOW_MS
        assert served(meter, RATE) == RATE


def test_what_makes_no_request_counts_with_the_next(scene: Scene) -> None:
    """Whoever read it: many who each read a little are no way around."""
    counts = Counting()
    meter = Meter(counts, scene.clock)
    third = limits.KEY_READ_SIZE // 3 + 1
    assert [meter.charge(FEED, "a", RATE, third) for _ in range(4)] == [False, False, True, False]
    assert counts.writes == 1


def test_a_charge_is_one_write(scene: Scene) -> None:
    """However much it is; others hear of it at once."""
    counts = Counting()
    meter = Meter(counts, scene.clock)
    served(meter, 1)
    assert charge(meter, 10**6) > 0
    assert counts.writes == 2
