"""
A short soak: a twin under load is killed, cut and stopped, and nothing is lost.

On a twin: a server has no functions that could be killed or stopped one by one.
"""

from __future__ import annotations

from collections import Counter

import pytest

from bench import soak
from bench.loading.faults import KINDS
from bench.loading.recorder import Interval
from bench.soak import Soak

MB = 1024 * 1024


@pytest.mark.java
def test_nothing_is_lost_while_everything_fails() -> None:
    """Each kind of fault is seen to have happened, and the connections to have been lost by it."""
    soaked = soak.soak(24, rate=6, every_s=5, quiet=True)
    run = soaked.run

    assert run.violations == []
    assert soaked.of_kind() == Counter(KINDS)
    assert run.recorder.counted("connections lost") >= run.plan.consumers
    assert run.recorder.counted("retries") >= 1
    assert run.recorder.counted("acknowledged") == run.plan.total
    assert run.ledger.end == run.plan.total
    engines = [each.memory.get("engine", 0) for each in run.recorder.intervals]
    assert max(engines) > 50 * MB, "the memory of the engine was not seen"
    assert "| violations | 0 |" in soak.section(soaked).markdown()


class _Shown:
    """As much of a run as growth is judged by."""

    lost = 0

    def __init__(self, intervals: list[Interval]) -> None:
        self.recorder = type("Recorder", (), {"intervals": intervals})()


def _soaked(sizes: list[int]) -> Soak:
    intervals = [
        Interval(100.0 * number, memory={"gateway": size * MB}) for number, size in enumerate(sizes)
    ]
    return Soak(_Shown(intervals), [(150.0, kind, "") for kind in KINDS])  # type: ignore[arg-type]


def test_a_process_that_grows_is_seen() -> None:
    """From the second interval behind the last kill on; what was before it does not count."""
    steady, growing = [10, 400, 30, 50, 52, 51, 50, 53], [10, 400, 30, 50, 60, 70, 80, 90]

    assert soak.grown(_soaked(steady)) == {"gateway": (50 * MB, 53 * MB)}
    assert soak.met(_soaked(steady))
    assert not soak.met(_soaked(growing))


def test_a_run_that_is_too_short_says_nothing_of_growth() -> None:
    """Four warm intervals are the least."""
    assert soak.grown(_soaked([10, 10, 10, 50, 90])) == {}
