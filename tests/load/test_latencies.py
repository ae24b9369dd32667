"""Percentiles."""

from __future__ import annotations

import random

import pytest

from bench.loading.latencies import Latencies


def test_percentiles_are_those_of_the_values() -> None:
    """Within one part in a hundred of what sorting says, from microseconds to minutes."""
    chance = random.Random(3)
    values = sorted(10 ** chance.uniform(-5, 2) for _ in range(10_000))
    found = Latencies(values)

    for share in (10, 50, 90, 99, 99.9):
        assert found.at(share) == pytest.approx(values[int(share / 100 * 10_000) - 1], rel=0.02)
    assert found.longest == pytest.approx(values[-1], rel=0.01)


def test_two_histograms_are_one() -> None:
    """Added, they have the percentiles of all values together."""
    low, high = Latencies([0.001] * 90), Latencies([1.0] * 10)
    low.add(high)

    assert low.count == 100
    assert low.at(90) == pytest.approx(0.001, rel=0.01)
    assert low.at(91) == pytest.approx(1.0, rel=0.01)


def test_what_is_out_of_range_is_counted() -> None:
    """Longer than an hour counts as an hour; an operation heard at once as a microsecond."""
    found = Latencies([-0.5, 0.0, 100_000.0])

    assert found.count == 3
    assert found.at(50) < 0.001
    assert found.longest == pytest.approx(3_600, rel=0.01)


def test_without_values_there_is_nothing() -> None:
    """Nobody divides by it."""
    assert (Latencies().at(99), Latencies().longest) == (0, 0)
