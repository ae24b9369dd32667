"""
Run the benchmarks and write `bench/RESULTS.md`.

    python -m bench                    run all of them (half an hour)
    python -m bench planning units     run some, and print the results only
    python -m bench --save planning    run some, and replace their sections
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import cold_start, costs, diff, dynamodb, load, push, results, serve, spark
from .results import Section

_SECTIONS: dict[str, Callable[[], Section]] = {
    "units": dynamodb.measure_units,
    "replay": dynamodb.measure_replay,
    "costs": costs.measure,
    "serve": serve.measure,
    "planning": push.measure_planning,
    "push": push.measure,
    "load": load.measure,
    "cold_start": cold_start.measure,
    "diff": diff.measure,
    "spark": spark.measure,
}


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if name != "--save"]
    unknown = [name for name in names if name not in _SECTIONS]
    if unknown:
        known = ", ".join(_SECTIONS)
        sys.stderr.write(f"unknown benchmark: {unknown[0]}; the benchmarks are {known}\n")
        return 2
    found = {}
    for name in names or list(_SECTIONS):
        sys.stderr.write(f"measuring {name} ...\n")
        section = _SECTIONS[name]()
        found[section.title] = section.markdown()
        sys.stdout.write(found[section.title] + "\n")
        sys.stdout.flush()
    if not names or "--save" in arguments:
        results.save(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
