"""
Run many seeds, or one again: `python -m tests.simulation --seeds 500`.

Stops at the first seed that breaks a promise, tells how, and writes its history.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.simulation.run import Failed, Outcome, Plan, run

_EVERY_S = 5.0
_LAST = 40
_ENOUGH = 100  # seeds in which every fault that there is must have struck
_ADDED = {
    "copies": "with consumers that copy",
    "syncs": "with plans and their corrections",
    "listeners": "with listeners that overflow",
    "consumers": "with named consumers",
    "archive": "and with --copies an archive",
    "relays": "with feeds that copy this one",
    "feeds": "with a feed whose log is throttled",
    "clocks": "with clocks that are hours off",
    "volume": "with a consumer that is held",
    "frames": "with frames that come late",
    "raised": "and with --copies more retention",
    "lanes": "with lanes of push that come and go",
}


class NeverMet(Exception):
    """The run proves nothing about some of the faults."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--history", type=Path, help="write the last seed's history here")
    for name, what in _ADDED.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--without", default="", help="kinds of faults, comma separated")
    chosen = parser.parse_args(arguments)
    try:
        added = {name: getattr(chosen, name) for name in _ADDED}
        without = frozenset(filter(None, chosen.without.split(",")))
        plan = Plan(chosen.seed, without=without, **added)
        outcome = _run(plan, chosen.seeds)
    except Failed as failed:
        _say(report(failed, chosen.history))
        return 1
    except NeverMet as never:
        _say(str(never))
        return 1
    if chosen.history:
        chosen.history.write_text("\n".join(outcome.history.lines()) + "\n")
    return 0


def _run(first: Plan, count: int) -> Outcome:
    began = told = time.monotonic()
    fired: Counter[str] = Counter()
    expected: set[str] = set()
    steps = 0
    for done in range(1, max(1, count) + 1):
        outcome = run(replace(first, seed=first.seed + done - 1))
        fired += outcome.fired
        expected |= outcome.expected
        steps += outcome.steps
        now = time.monotonic()
        if now - told > _EVERY_S:
            told = now
            _say(f"{done} seeds, {steps:,} steps, {now - began:.0f} s")
    _say(f"{done} seeds from {first.seed} on, {steps:,} steps, every promise kept")
    _say(", ".join(f"{kind} {fired[kind]:,}" for kind in sorted({*fired, *expected})))
    never = sorted(kind for kind in expected if not fired[kind])
    if never and done >= _ENOUGH:
        raise NeverMet(f"{done} seeds did not meet: {', '.join(never)}")
    return outcome


def report(failed: Failed, wanted: Path | None = None) -> str:
    """How *failed* came about and how to see it again; its history is written to *wanted*."""
    seed = failed.plan.seed
    path = wanted or Path(tempfile.gettempdir()) / f"tidings-seed-{seed}.jsonl"
    path.write_text("\n".join(failed.history.lines()) + "\n")
    added = "".join(f" --{name}" for name in _ADDED if getattr(failed.plan, name))
    added += f" --without {','.join(sorted(failed.plan.without))}" if failed.plan.without else ""
    return "\n".join(
        [
            *failed.history.lines(_LAST),
            f"seed {seed} broke a promise: {failed.reason}",
            f"history: {path}",
            f"again: python -m tests.simulation --seed {seed}{added}",
        ]
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
