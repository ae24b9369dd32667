"""Compare-and-set on the log in small, in every interleaving; and broken, to be noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tidings.core import limits
from tidings.core.correcting import Corrector
from tidings.core.corrections import Correction
from tidings.core.projecting import STATE
from tidings.core.whereabouts import Whereabouts

from .correcting import Scenario
from .explorer import Broken, explore


class LooksBefore(Corrector):
    """The last look is before the number is taken."""

    def _read_to(self, feed: str, last: int, where: Whereabouts, polls_max: int) -> bool:
        return True


class LeapsOverHoles(Corrector):
    """A number without a page below its own is nothing to wait for."""

    def _read_to(self, feed: str, last: int, where: Whereabouts, polls_max: int) -> bool:
        for page in self.log.read(feed, where.page):
            if page.number <= last:
                where.page = page.number - 1
                where.see_pages([page])
        where.page = last
        return True


class RowsFirst(Corrector):
    """The checkpoint is read behind the rows, which may be older than it."""

    def _look(self, feed: str, section: Sequence[Correction]) -> Whereabouts:
        rows = self.states.find(feed, [each.key for each in section])
        where = Whereabouts(section, self.checkpoints.checkpoints(feed).get(STATE, 0))
        where.see_rows(rows)
        return where


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a writer only makes schedules longer: at a hole, the number is given back."""
    monkeypatch.setattr(limits, "CORRECT_POLLS_MAX", 0)
    monkeypatch.setattr(limits, "CORRECT_YIELD_POLLS_MAX", 0)
    monkeypatch.setattr(limits, "APPEND_ATTEMPTS_MAX", 2)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(posts=("a",), appliers=1, rounds=1),
        Scenario(posts=(), appliers=2, rounds=0),
    ],
    ids=["a producer and a follower", "two appliers of one plan"],
)
def test_nothing_posted_is_overwritten_and_nothing_applied_twice(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    """In every interleaving, whoever is killed wherever, once."""
    explored = explore(scenario.build, crashes_max=1)

    print(f"\n{explored.schedules:,} interleavings, {explored.states:,} states")  # noqa: T201
    record_property("interleavings", explored.schedules)
    assert explored.schedules > 10_000


@pytest.mark.parametrize("broken", [LooksBefore, LeapsOverHoles, RowsFirst])
def test_a_broken_corrector_is_noticed(broken: type[Corrector]) -> None:
    """Each of the rules is needed: without it, some schedule overwrites what was posted."""
    with pytest.raises(Broken, match="overwritten"):
        explore(Scenario(posts=("a",), appliers=1, rounds=1, corrector=broken).build, crashes_max=0)
