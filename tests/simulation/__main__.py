"""Run one seed again: `python -m tests.simulation --seed 7`. `python -m bench.simulation` runs
many.

If it breaks a promise, the program prints how, and writes its history.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.simulation.run import Failed, Plan, run

_LAST = 40
_ADDED = {
    "copies": "with consumers that copy",
    "syncs": "with plans and their corrections",
    "listeners": "with listeners that overflow",
    "consumers": "with named consumers",
    "archive": "and with --copies an archive",
    "relays": "with feeds that copy this one",
    "feeds": "with a feed that has a throttled log",
    "clocks": "with clocks that are hours off",
    "volume": "with a consumer that is held",
    "frames": "with frames that come late",
    "raised": "and with --copies more retention",
    "lanes": "with lanes of push that come and go",
    "keys": "with keys that are revoked",
    "server": "the real server on SQLite",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which one")
    parser.add_argument("--history", type=Path, help="write its history here")
    for name, what in _ADDED.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--without", default="", help="kinds of faults, comma separated")
    chosen = parser.parse_args(arguments)
    added = {name: getattr(chosen, name) for name in _ADDED}
    without = frozenset(filter(None, chosen.without.split(",")))
    try:
        outcome = run(Plan(chosen.seed, without=without, **added))
    except Failed as failed:
        _say(report(failed, chosen.history))
        return 1
    _say(f"seed {chosen.seed}, {outcome.steps:,} steps, every promise kept")
    struck = outcome.fired
    _say(", ".join(f"{kind} {struck[kind]:,}" for kind in sorted({*struck, *outcome.expected})))
    if chosen.history:
        chosen.history.write_text("\n".join(outcome.history.lines()) + "\n")
    return 0


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
