"""The world of one server: the real host on SQLite, killed, restored and out of disk."""

from __future__ import annotations

from collections import Counter

from tests.simulation.run import Plan, run
from tests.simulation.server.world import RATES

FIRST, SEEDS = 4, 10
# So few seeds may miss these; `bench.simulation` requires them.
RARE = {
    "clock_ahead",
    "full_disk",
    "full_write",
    "loss was listed",
    "outage",
    "read_error_at_start",
    "restore",
}


def test_every_promise_is_kept_whatever_happens_to_a_server() -> None:
    """`run` raises where a promise is broken; here it was not, and there was something to keep."""
    outcomes = [run(Plan(seed, server=True)) for seed in range(FIRST, FIRST + SEEDS)]
    fired = sum((outcome.fired for outcome in outcomes), Counter())

    assert sum(outcome.acknowledged for outcome in outcomes) > 200
    assert sum(outcome.events for outcome in outcomes) > 1_000
    seen = {
        "copy was promoted",
        "correction was applied",
        "hook was called",
        "key was revoked",
        "lease was taken",
        "loss was listed",
        "settings were changed",
        "sums were known",
    }
    assert sorted({*RATES, *seen} - RARE - set(fired)) == []


def test_a_seed_of_a_server_is_the_same_run_every_time() -> None:
    """Its history has every event that a client got, at the same time."""
    first, again = (list(run(Plan(2, server=True)).history.lines()) for _ in range(2))

    assert first == again


ERASING = 8


def test_no_store_has_what_was_erased_whatever_happens_to_a_server() -> None:
    """Neither after a kill at any statement, nor after a restore or a promotion."""
    plans = [Plan(seed, server=True, erasures=True) for seed in range(ERASING)]
    fired = sum((run(plan).fired for plan in plans), Counter())

    assert fired["object was erased"] > 3
    assert fired["entry was erased"] > 20


OWNING = 10


def test_feeds_are_created_and_deleted_whatever_happens_to_a_server() -> None:
    """Nothing of a deleted feed is left, or is in its successor; old cursors are reported."""
    plans = [Plan(seed, server=True, owners=True) for seed in range(OWNING)]
    fired = sum((run(plan).fired for plan in plans), Counter())

    assert fired["feed was used"] > 100
    assert fired["feed was removed"] > 6
    assert fired["late post was refused"] > 3
    assert fired["old cursor was refused"] > 10
