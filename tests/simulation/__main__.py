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

from .story import Failed, Outcome, Plan, tell

_EVERY_S = 5.0
_LAST = 40
_ENOUGH = 100  # seeds in which every fault that there is must have struck
_AMONG = (
    *("copies", "syncs", "listeners", "consumers", "archive"),
    *("relays", "feeds", "clocks", "volume", "frames", "raised"),
)


class NeverMet(Exception):
    """The run proves nothing about some of the faults."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--minutes", type=float, default=0, help="stop after this long")
    parser.add_argument("--history", type=Path, help="write the last seed's history here")
    parser.add_argument("--copies", action="store_true", help="with consumers that copy")
    parser.add_argument("--syncs", action="store_true", help="with plans and their corrections")
    parser.add_argument("--listeners", action="store_true", help="with listeners that overflow")
    parser.add_argument("--consumers", action="store_true", help="with named consumers")
    parser.add_argument("--archive", action="store_true", help="and with --copies an archive")
    parser.add_argument("--relays", action="store_true", help="with feeds that copy this one")
    parser.add_argument("--feeds", action="store_true", help="with a feed whose log is throttled")
    parser.add_argument("--clocks", action="store_true", help="with clocks that are hours off")
    parser.add_argument("--volume", action="store_true", help="with a consumer that is held")
    parser.add_argument("--frames", action="store_true", help="with frames that come late")
    parser.add_argument("--raised", action="store_true", help="and with --copies more retention")
    parser.add_argument("--without", default="", help="kinds of faults, comma separated")
    chosen = parser.parse_args(arguments)
    try:
        among = {name: getattr(chosen, name) for name in _AMONG}
        without = frozenset(filter(None, chosen.without.split(",")))
        plan = Plan(chosen.seed, without=without, **among)
        outcome = _run(plan, chosen.seeds, chosen.minutes * 60)
    except Failed as failed:
        return _report(failed, chosen.history)
    except NeverMet as never:
        _say(str(never))
        return 1
    if chosen.history:
        chosen.history.write_text("\n".join(outcome.history.lines()) + "\n")
    return 0


def _run(first: Plan, count: int, limit_s: float) -> Outcome:
    began = told = time.monotonic()
    fired: Counter[str] = Counter()
    expected: set[str] = set()
    steps = 0
    for done in range(1, max(1, count) + 1):
        outcome = tell(replace(first, seed=first.seed + done - 1))
        fired += outcome.fired
        expected |= outcome.expected
        steps += outcome.steps
        now = time.monotonic()
        if now - told > _EVERY_S:
            told = now
            _say(f"{done} seeds, {steps:,} steps, {now - began:.0f} s")
        if limit_s and now - began > limit_s:
            break
    _say(f"{done} seeds from {first.seed} on, {steps:,} steps, every promise kept")
    _say(", ".join(f"{kind} {fired[kind]:,}" for kind in sorted({*fired, *expected})))
    never = sorted(kind for kind in expected if not fired[kind])
    if never and done >= _ENOUGH:
        raise NeverMet(f"{done} seeds did not meet: {', '.join(never)}")
    return outcome


def _report(failed: Failed, wanted: Path | None) -> int:
    seed = failed.plan.seed
    path = wanted or Path(tempfile.gettempdir()) / f"tidings-seed-{seed}.jsonl"
    path.write_text("\n".join(failed.history.lines()) + "\n")
    _say("\n".join(failed.history.lines(_LAST)))
    _say(f"seed {seed} broke a promise: {failed.reason}")
    _say(f"history: {path}")
    among = "".join(f" --{name}" for name in _AMONG if getattr(failed.plan, name))
    among += f" --without {','.join(sorted(failed.plan.without))}" if failed.plan.without else ""
    _say(f"again: python -m tests.simulation --seed {seed}{among}")
    return 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
