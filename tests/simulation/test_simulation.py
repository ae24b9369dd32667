"""A short run of the simulation. `make sim` runs it long."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from . import archives, copies, listening, named, relays, syncs
from .story import Outcome, Plan, tell
from .weather import MANNERS, RATES

SEEDS = 60
SEEDS_OF_COPIES = 10  # each is several times the work
SEEDS_OF_ARCHIVES = 6
SEEDS_OF_SYNCS = 8
SEEDS_OF_LISTENERS = 8
SEEDS_OF_CONSUMERS = 8
SEEDS_OF_RELAYS = 8
_LEADS_TO = (
    "connection was cut",
    "event was repeated",
    "filler came late",
    "floor was raised",
    "hole was filled",
    "killed at the time limit",
    "leave in doubt",
    "leave was told",
    "page expired",
    "reset was told",
    "row was told",
    "socket was gone",
    "writer was overtaken",
)
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [tell(Plan(seed)) for seed in range(SEEDS)]


def test_every_promise_is_kept_whatever_fails(outcomes: list[Outcome]) -> None:
    """`tell` raises where a promise is broken; here it was not, and there was something to keep."""
    assert sum(outcome.acknowledged for outcome in outcomes) > 1_000
    assert sum(outcome.events for outcome in outcomes) > 5_000


def test_every_fault_has_struck(outcomes: list[Outcome]) -> None:
    """A fault that never fires proves nothing; nor one that leads to nothing."""
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in (*RATES, *MANNERS, *_LEADS_TO) if not fired[kind]] == []


def test_copies_are_complete_whatever_is_cut_and_trimmed() -> None:
    """From `0`, `1`, a time, an ObjectId or a lost page, with every fault there is for them."""
    outcomes = [tell(Plan(seed, copies=True)) for seed in range(SEEDS_OF_COPIES)]
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in (*copies.RATES, *copies.LEADS_TO) if not fired[kind]] == []
    assert fired["row was told"] > 2_000


def test_an_archive_stands_behind_every_cursor() -> None:
    """Copies go on from it and places below the floor too, with every fault there is for them."""
    plans = [Plan(seed, copies=True, archive=True) for seed in range(SEEDS_OF_ARCHIVES)]
    fired: Counter[str] = sum((tell(plan).fired for plan in plans), Counter())

    assert [kind for kind in (*copies.RATES, *archives.LEADS_TO) if not fired[kind]] == []


def test_corrections_overwrite_nothing_whatever_fails() -> None:
    """Posted meanwhile, applied twice, killed anywhere: each right behind what its plan saw."""
    outcomes = [tell(Plan(seed, syncs=True)) for seed in range(SEEDS_OF_SYNCS)]
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in syncs.LEADS_TO if fired[kind] < 20] == []


def test_listeners_know_what_is_whatever_overflows() -> None:
    """In the bootstrap and when live: nothing is lost, and each goes live again."""
    outcomes = [tell(Plan(seed, listeners=True)) for seed in range(SEEDS_OF_LISTENERS)]
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in (*listening.RATES, *listening.LEADS_TO) if fired[kind] < 20] == []


def test_named_consumers_are_owed_nothing_whatever_their_workers_do() -> None:
    """Written in order by who acknowledges it, or put aside with a note: nothing is passed over."""
    outcomes = [tell(Plan(seed, consumers=True)) for seed in range(SEEDS_OF_CONSUMERS)]
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in (*named.RATES, *named.LEADS_TO) if not fired[kind]] == []
    assert fired["message came alone"] > 100


def test_D5_D38_D42_chained_feeds_are_the_master_whatever_fails() -> None:
    """Log, ids and state, through elections, kills, outages, operators and trimmed logs."""
    outcomes = [tell(Plan(seed, relays=True)) for seed in range(SEEDS_OF_RELAYS)]
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())

    assert [kind for kind in (*relays.RATES, *relays.LEADS_TO) if not fired[kind]] == []
    assert fired["pages were copied"] > 300


@pytest.mark.parametrize("seed", range(12))
def test_clear_weather_repeats_nothing(seed: int) -> None:
    """Without faults no connection hears anything twice, and all that is asked is acknowledged."""
    outcome = tell(Plan(seed, clear=True))

    assert outcome.fired["event was repeated"] == 0
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
