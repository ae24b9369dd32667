"""Metering: how many requests a key makes, over all processes."""

from __future__ import annotations

import pytest
from tidings.core import limits
from tidings.core.errors import TooManyRequests, Unavailable
from tidings.core.memory import MemoryKeyCounts
from tidings.core.metering import Meter

from tests.unit.scene import FEED, NOW

RATE = 5


class Time:
    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


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


def test_a_process_serves_its_rate_each_second() -> None:
    """Each key has its own."""
    time = Time()
    meter = Meter(MemoryKeyCounts(), time)
    assert served(meter, 100) == RATE
    assert served(meter, 100, "b") == RATE
    time.ms += 1000
    assert served(meter, 100) == RATE


def test_it_costs_a_write_a_second_at_most() -> None:
    """Whatever comes."""
    time, counts = Time(), Counting()
    meter = Meter(counts, time)
    for _ in range(50):
        served(meter, RATE)
        time.ms += 100
    assert counts.writes == 5


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_all_processes_together_keep_to_it_within_a_window(processes: int) -> None:
    """Ten times the rate in ten seconds, and what each has not settled: a second's at most."""
    time, counts = Time(), MemoryKeyCounts()
    meters = [Meter(counts, time) for _ in range(processes)]
    total = 0
    for _ in range(100):
        total += sum(served(meter, RATE) for meter in meters)
        time.ms += limits.KEY_WINDOW_MS // 100
    assert 10 * RATE <= total <= 10 * RATE + processes * RATE


def test_who_is_refused_is_told_when_to_ask_again() -> None:
    """In a second, or when the window is over."""
    time, counts = Time(), MemoryKeyCounts()
    time.ms = NOW - NOW % limits.KEY_WINDOW_MS
    meter = Meter(counts, time)
    served(meter, RATE)
    with pytest.raises(TooManyRequests) as refused:
        meter.spend(FEED, "a", RATE)
    assert refused.value.retry_after_s == 1
    counts.add(FEED, "a", time.ms // limits.KEY_WINDOW_MS, 10 * RATE)
    time.ms += 1500
    served(meter, 1)
    with pytest.raises(TooManyRequests) as refused:
        meter.spend(FEED, "a", RATE)
    assert refused.value.retry_after_s == 9


def test_a_window_begins_anew() -> None:
    """Whatever was used before."""
    time, counts = Time(), MemoryKeyCounts()
    counts.add(FEED, "a", time.ms // limits.KEY_WINDOW_MS, 10 * RATE)
    meter = Meter(counts, time)
    assert served(meter, 2) == 1  # the first one settles, and hears of the others
    time.ms += limits.KEY_WINDOW_MS
    assert served(meter, 2) == 2


def test_nobody_is_refused_because_a_store_is_away() -> None:
    """A rate is no reason to be down; the process keeps to it by itself."""

    class Away(MemoryKeyCounts):
        def add(self, feed: str, name: str, window: int, requests: int) -> int:
            raise Unavailable("it rains")

    assert served(Meter(Away(), Time()), 100) == RATE


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is shown again after many others begins anew here, and not for all."""
    monkeypatch.setattr(limits, "KEYS_KNOWN_MAX", 2)
    meter = Meter(MemoryKeyCounts(), Time())
    assert [served(meter, RATE, key) for key in ("a", "b", "c", "a")] == [RATE] * 4
    assert served(meter, 1, "c") == 0
