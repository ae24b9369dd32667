"""A short run of the simulation. `make sim` runs it long."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation import (
    archives,
    clocks,
    copies,
    keys,
    lanes,
    listeners,
    named_consumers,
    relays,
    sockets,
    syncs,
    throttled_feed,
    volume,
)
from tests.simulation.run import Outcome, Plan, run

SEEDS = 50
SEEDS_OF_OTHERS = 8
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [run(Plan(seed)) for seed in range(SEEDS)]


def fired_in(outcomes: list[Outcome]) -> Counter[str]:
    return sum((outcome.fired for outcome in outcomes), Counter())


def too_rare(seeds: int, plan: Plan, least: Mapping[str, int]) -> list[str]:
    """Return the kinds that the first *seeds* meet too rarely, which would prove nothing."""
    fired = fired_in([run(replace(plan, seed=seed)) for seed in range(seeds)])
    return sorted(kind for kind, times in least.items() if fired[kind] < times)


def test_every_promise_is_kept_whatever_fails(outcomes: list[Outcome]) -> None:
    """`run` raises where a promise is broken; here it was not, and there was something to keep."""
    assert sum(outcome.acknowledged for outcome in outcomes) > 1_000
    assert sum(outcome.events for outcome in outcomes) > 5_000


def test_every_fault_has_struck(outcomes: list[Outcome]) -> None:
    """Each fault has also had its possible effects."""
    expected = {kind for outcome in outcomes for kind in outcome.expected}
    fired = fired_in(outcomes)

    assert sorted(kind for kind in expected if not fired[kind]) == []


def at_least(times: int, *kinds: str) -> dict[str, int]:
    return dict.fromkeys(kinds, times)


# The additions, how many seeds have them, and how often their effects must have happened.
ADDED: dict[str, tuple[Plan, int, dict[str, int]]] = {
    "copies are complete whatever is cut and trimmed": (
        Plan(0, copies=True),
        10,  # each is several times the work
        at_least(1, *copies.RATES, *copies.LEADS_TO) | at_least(2_001, "row was told"),
    ),
    "an archive serves every old cursor": (
        Plan(0, copies=True, archive=True),
        14,  # a part is seldom written again
        at_least(1, *copies.RATES, *archives.LEADS_TO),
    ),
    "a retention that grows forgets no deletion unsaid": (
        Plan(0, copies=True, raised=True),
        6,
        at_least(1, *copies.RAISED_RATES, *copies.RAISED_LEADS_TO),
    ),
    "corrections overwrite nothing whatever fails": (
        Plan(0, syncs=True),
        SEEDS_OF_OTHERS,
        at_least(20, *syncs.LEADS_TO),
    ),
    "listeners know what is whatever overflows": (
        Plan(0, listeners=True),
        16,  # few overflow before they are live
        at_least(20, *listeners.RATES, *listeners.LEADS_TO),
    ),
    "named consumers are owed nothing whatever their workers do": (
        Plan(0, consumers=True),
        SEEDS_OF_OTHERS,
        at_least(1, *named_consumers.RATES, *named_consumers.LEADS_TO)
        | at_least(101, "message came alone"),
    ),
    "one feed's trouble is not another's": (
        Plan(0, feeds=True),
        SEEDS_OF_OTHERS,
        at_least(1, *throttled_feed.RATES),
    ),
    "lanes come and go without a gap": (
        Plan(0, lanes=True),
        12,
        at_least(12, *lanes.RATES, *lanes.LEADS_TO),
    ),
    "a revoked key opens nothing whichever process was suspended": (
        Plan(0, keys=True),
        SEEDS_OF_OTHERS,
        at_least(8, *keys.RATES, *keys.LEADS_TO),
    ),
    "clocks that are minutes off cost time alone": (
        Plan(0, clocks=True),
        SEEDS_OF_OTHERS,
        at_least(1, *clocks.RATES),
    ),
}


@pytest.mark.parametrize(("plan", "seeds", "least"), ADDED.values(), ids=list(ADDED))
def test_every_promise_is_kept_with_what_is_added(
    plan: Plan, seeds: int, least: dict[str, int]
) -> None:
    """With every fault there is for it, each of which has struck."""
    assert too_rare(seeds, plan, least) == []


def test_D5_D38_D42_chained_feeds_are_the_master_whatever_fails() -> None:
    """Log, ids and state, through elections, kills, outages, operators and trimmed logs."""
    least = at_least(1, *relays.RATES, *relays.LEADS_TO) | at_least(301, "pages were copied")

    assert too_rare(SEEDS_OF_OTHERS, Plan(0, relays=True), least) == []


def test_14_7_a_held_consumer_loses_nothing_at_any_volume() -> None:
    """The consumer stays below the cap; a call for each page would take longer than a sweep."""
    least = at_least(1, *volume.RATES, *volume.LEADS_TO)

    assert too_rare(SEEDS_OF_OTHERS, Plan(0, volume=True), least) == []


def test_8_8_what_comes_late_leads_nobody_back() -> None:
    """Frames of senders that are dead, when others have sent what follows."""
    least = at_least(1, *sockets.LATE_RATES, *sockets.LATE_LEADS_TO)

    assert too_rare(SEEDS_OF_OTHERS, Plan(0, frames=True), least) == []


@pytest.mark.parametrize("seed", range(12))
def test_without_faults_nothing_is_repeated(seed: int) -> None:
    """Without faults no event is repeated on a connection, and every request is acknowledged."""
    outcome = run(Plan(seed, clear=True))

    assert outcome.fired["event was repeated"] == 0
    assert outcome.fired["what came again was left out"] == 0
    assert outcome.unknown == 0


@pytest.mark.parametrize("seed", range(12))
def test_no_wake_up_is_lost_without_the_sweep(seed: int) -> None:
    """The safety net is for faults only: marks and wake-ups alone wake every follower in need."""
    run(Plan(seed, clear=True, sweeps=False))


def test_a_seed_is_the_same_run_every_time() -> None:
    """Byte for byte, and in another process with other hashes too."""
    ours = "\n".join(run(Plan(7)).history.lines()) + "\n"
    code = (
        "import hashlib; from tests.simulation.run import Plan, run;"
        "text = '\\n'.join(run(Plan(7)).history.lines()) + '\\n';"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    paths = [".", "src"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(paths)}

    again = "\n".join(run(Plan(7)).history.lines()) + "\n"
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
