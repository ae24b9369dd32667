"""A short run of the simulation. `make sim` runs it long."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from . import (
    archives,
    clocks,
    copies,
    late_frames,
    listening,
    named,
    raised,
    relays,
    several,
    syncs,
    volume,
)
from .story import Outcome, Plan, tell

SEEDS = 50
SEEDS_OF_COPIES = 10  # each is several times the work
SEEDS_OF_ARCHIVES = 6
SEEDS_OF_OTHERS = 8
SEEDS_OF_LISTENERS = 12  # few overflow before they are live
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [tell(Plan(seed)) for seed in range(SEEDS)]


def told(count: int, plan: Plan) -> list[Outcome]:
    """The first *count* seeds of *plan*."""
    return [tell(replace(plan, seed=seed)) for seed in range(count)]


def fired_in(outcomes: list[Outcome]) -> Counter[str]:
    return sum((outcome.fired for outcome in outcomes), Counter())


def never_met(outcomes: list[Outcome], among: Collection[str] = ()) -> list[str]:
    """Of *among*, or of all that is expected. A fault that never fires proves nothing."""
    fired = fired_in(outcomes)
    expected = {kind for outcome in outcomes for kind in outcome.expected}
    return sorted(kind for kind in among or expected if not fired[kind])


def test_every_promise_is_kept_whatever_fails(outcomes: list[Outcome]) -> None:
    """`tell` raises where a promise is broken; here it was not, and there was something to keep."""
    assert sum(outcome.acknowledged for outcome in outcomes) > 1_000
    assert sum(outcome.events for outcome in outcomes) > 5_000


def test_every_fault_has_struck(outcomes: list[Outcome]) -> None:
    """And has led to what it must be able to lead to."""
    assert never_met(outcomes) == []


def test_copies_are_complete_whatever_is_cut_and_trimmed() -> None:
    """From `0`, `1`, a time, an ObjectId or a lost page, with every fault there is for them."""
    outcomes = told(SEEDS_OF_COPIES, Plan(0, copies=True))

    assert never_met(outcomes, (*copies.RATES, *copies.LEADS_TO)) == []
    assert fired_in(outcomes)["row was told"] > 2_000


def test_an_archive_stands_behind_every_cursor() -> None:
    """Copies go on from it and places below the floor too, with every fault there is for them."""
    outcomes = told(SEEDS_OF_ARCHIVES, Plan(0, copies=True, archive=True))

    assert never_met(outcomes, (*copies.RATES, *archives.LEADS_TO)) == []


def test_corrections_overwrite_nothing_whatever_fails() -> None:
    """Posted meanwhile, applied twice, killed anywhere: each right behind what its plan saw."""
    fired = fired_in(told(SEEDS_OF_OTHERS, Plan(0, syncs=True)))

    assert [kind for kind in syncs.LEADS_TO if fired[kind] < 20] == []


def test_listeners_know_what_is_whatever_overflows() -> None:
    """In the bootstrap and when live: nothing is lost, and each goes live again."""
    fired = fired_in(told(SEEDS_OF_LISTENERS, Plan(0, listeners=True)))

    assert [kind for kind in (*listening.RATES, *listening.LEADS_TO) if fired[kind] < 20] == []


def test_named_consumers_are_owed_nothing_whatever_their_workers_do() -> None:
    """Written in order by who acknowledges it, or put aside with a note: nothing is passed over."""
    outcomes = told(SEEDS_OF_OTHERS, Plan(0, consumers=True))

    assert never_met(outcomes, (*named.RATES, *named.LEADS_TO)) == []
    assert fired_in(outcomes)["message came alone"] > 100


def test_D5_D38_D42_chained_feeds_are_the_master_whatever_fails() -> None:
    """Log, ids and state, through elections, kills, outages, operators and trimmed logs."""
    outcomes = told(SEEDS_OF_OTHERS, Plan(0, relays=True))

    assert never_met(outcomes, (*relays.RATES, *relays.LEADS_TO)) == []
    assert fired_in(outcomes)["pages were copied"] > 300


def test_one_feeds_trouble_is_not_anothers() -> None:
    """Its log is throttled; the other feed comes to rest meanwhile, and it does afterwards."""
    assert never_met(told(SEEDS_OF_OTHERS, Plan(0, feeds=True)), several.RATES) == []


def test_clocks_that_are_minutes_off_cost_time_alone() -> None:
    """Who holds a lease, what the state is and what is told to whom depends on none of them."""
    assert never_met(told(SEEDS_OF_OTHERS, Plan(0, clocks=True)), clocks.RATES) == []


def test_14_7_a_held_consumer_loses_nothing_at_any_volume() -> None:
    """Below the cap, while a call for each page would take longer than a sweep."""
    assert (
        never_met(told(SEEDS_OF_OTHERS, Plan(0, volume=True)), (*volume.RATES, *volume.LEADS_TO))
        == []
    )


def test_8_8_what_comes_late_leads_nobody_back() -> None:
    """Frames of senders that are dead, when others have sent what follows."""
    outcomes = told(SEEDS_OF_OTHERS, Plan(0, frames=True))

    assert never_met(outcomes, (*late_frames.RATES, *late_frames.LEADS_TO)) == []


def test_a_retention_that_grows_forgets_no_deletion_unsaid() -> None:
    """Tombstones live as long as was set when they were written; who missed one starts anew."""
    outcomes = told(SEEDS_OF_ARCHIVES, Plan(0, copies=True, raised=True))

    assert never_met(outcomes, (*raised.RATES, *raised.LEADS_TO)) == []


@pytest.mark.parametrize("seed", range(12))
def test_clear_weather_repeats_nothing(seed: int) -> None:
    """Without faults no connection hears anything twice, and all that is asked is acknowledged."""
    outcome = tell(Plan(seed, clear=True))

    assert outcome.fired["event was repeated"] == 0
    assert outcome.fired["what came again was left out"] == 0
    assert outcome.unknown == 0


@pytest.mark.parametrize("seed", range(12))
def test_no_wake_up_is_lost_without_the_sweep(seed: int) -> None:
    """The safety net is for faults only: marks and bells alone wake whoever is needed."""
    tell(Plan(seed, clear=True, sweeps=False))


def test_a_seed_is_the_same_run_every_time() -> None:
    """Byte for byte, and in another process with other hashes too."""
    ours = "\n".join(tell(Plan(7)).history.lines()) + "\n"
    code = (
        "import hashlib; from tests.simulation.story import Plan, tell;"
        "text = '\\n'.join(tell(Plan(7)).history.lines()) + '\\n';"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    paths = [".", "layers/core/python"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(paths)}

    again = "\n".join(tell(Plan(7)).history.lines()) + "\n"
    theirs = subprocess.run(
        [sys.executable, "-c", code],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert ours == again
    assert hashlib.sha256(ours.encode()).hexdigest() == theirs.stdout.strip()
