"""Compare-and-set on the log in small, in every interleaving; and broken, to be noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.broken_correctors import LeapsOverHoles, LooksBefore, RowsFirst
from tests.model.correcting import Scenario
from tests.model.explorer import Broken, explore
from tidings.core import limits
from tidings.core.sync.apply import Corrector


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a writer only makes schedules longer: at a hole, the number is given back."""
    monkeypatch.setattr(limits, "CORRECT_POLLS_MAX", 0)
    monkeypatch.setattr(limits, "CORRECT_YIELD_POLLS_MAX", 0)
    monkeypatch.setattr(limits, "APPEND_ATTEMPTS_MAX", 2)


@pytest.mark.parametrize(
    "scenario",
    [Scenario(posts=("a",), appliers=1, rounds=1), Scenario(posts=(), appliers=2, rounds=0)],
    ids=["a producer and a follower", "two appliers of one plan"],
)
def test_nothing_posted_is_overwritten_and_nothing_applied_twice(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    """In every interleaving, with any one process killed at any point."""
    explored = explore(scenario.build, crashes_max=1)

    print(f"\n{explored.schedules:,} interleavings, {explored.states:,} states")  # noqa: T201
    record_property("interleavings", explored.schedules)
    assert explored.schedules > 10_000


@pytest.mark.parametrize("broken", [LooksBefore, LeapsOverHoles, RowsFirst])
def test_a_broken_corrector_is_noticed(broken: type[Corrector]) -> None:
    """Each of the rules is needed: without it, some schedule overwrites what was posted."""
    with pytest.raises(Broken, match="overwritten"):
        explore(Scenario(posts=("a",), appliers=1, rounds=1, corrector=broken).build, crashes_max=0)
