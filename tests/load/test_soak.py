"""A short soak: a host under load is killed, cut and stopped, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bench import soak
from bench.loading.faults import CUT, KILL, PAUSE
from bench.loading.recorder import Interval
from bench.soak import Soak

MB = 1024 * 1024


@pytest.mark.parametrize("on", ["server", pytest.param("twin", marks=pytest.mark.java)])
def test_nothing_is_lost_while_everything_fails(on: str) -> None:
    """Each kind of fault is seen to have happened, and the connections to have been lost by it."""
    seconds, rate = (24.0, 6.0) if on == "twin" else (20.0, 50.0)
    soaked = soak.soak(seconds, on=on, rate=rate, every_s=5, quiet=True)
    run = soaked.run

    assert run.violations == []
    assert soaked.of_kind() == Counter(soaked.wanted)
    assert soaked.compared > 0
    assert soaked.wrong == []
    assert run.recorder.counted("connections lost") >= run.plan.consumers
    assert run.recorder.counted("retries") >= 1
    assert run.recorder.counted("acknowledged") == run.plan.total
    assert run.ledger.end == run.plan.total
    store = "engine" if on == "twin" else "gateway"
    sizes = [each.memory.get(store, 0) for each in run.recorder.intervals]
    assert max(sizes) > 40 * MB, "the memory of the store was not seen"
    assert "| violations | 0 |" in soak.section(soaked).markdown()


class _Shown:
    """The part of a run that shows growth."""

    lost = 0

    def __init__(self, intervals: list[Interval]) -> None:
        self.recorder = type("Recorder", (), {"intervals": intervals})()


def _soaked(sizes: list[int]) -> Soak:
    intervals = [
        Interval(100.0 * number, memory={"gateway": size * MB}) for number, size in enumerate(sizes)
    ]
    kinds = (CUT, PAUSE, KILL)
    fired = [(150.0, kind, "") for kind in kinds]
    shown: Any = _Shown(intervals)
    return Soak("server", shown, fired, frozenset(kinds), compared=1)


def test_a_process_that_grows_is_seen() -> None:
    """From the second interval after the last kill on; earlier ones do not count."""
    steady, growing = [10, 400, 30, 50, 52, 51, 50, 53], [10, 400, 30, 50, 60, 70, 80, 90]

    assert soak.grown(_soaked(steady)) == {"gateway": (50 * MB, 53 * MB)}
    assert soak.met(_soaked(steady))
    assert not soak.met(_soaked(growing))


def test_a_bucket_that_differs_is_seen() -> None:
    """And so is a fold that never compared itself."""
    soaked = _soaked([10, 10, 10, 50, 50])
    assert not soak.met(replace(soaked, wrong=[7]))
    assert not soak.met(replace(soaked, compared=0))


def test_a_run_that_is_too_short_says_nothing_of_growth() -> None:
    """Four warm intervals are the least."""
    assert soak.grown(_soaked([10, 10, 10, 50, 90])) == {}
