"""
Measure everything and write `bench/RESULTS.md`.

    python -m bench                    all of it, three quarters of an hour
    python -m bench planning units     some of it, printed only
    python -m bench --save planning    some of it, put in the place of the earlier figures
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import (
    agent,
    apply,
    chaining,
    changes,
    cold_start,
    costs,
    diff,
    ingest,
    lake,
    latency,
    load,
    many_clients,
    messages,
    one_cursor,
    pipeline,
    planning,
    push,
    push_many,
    replay,
    replication,
    results,
    serve,
    sinks,
    sources,
    spark,
    spark_sink,
    sse_replay,
    state_follower,
    sums,
    sums_cpu,
    tracing,
    units,
)
from .sections import Section

_SECTIONS: dict[str, Callable[[], Section]] = {
    "units": units.measure,
    "sums": sums.measure,
    "sums_cpu": sums_cpu.measure,
    "tracing": tracing.measure,
    "costs": costs.measure,
    "serve": serve.measure,
    "ingest": ingest.measure,
    "replay": replay.measure,
    "sse_replay": sse_replay.measure,
    "replication": replication.measure,
    "many_clients": many_clients.measure,
    "state_follower": state_follower.measure,
    "planning": planning.measure,
    "push": push.measure,
    "push_many": push_many.measure,
    "messages": messages.measure,
    "latency": latency.measure,
    "load": load.measure,
    "cold_start": cold_start.measure,
    "agent": agent.measure,
    "diff": diff.measure,
    "laptop": diff.measure_laptop,
    "apply": apply.measure,
    "changes": changes.measure,
    "waiting": changes.measure_waiting,
    "one_cursor": one_cursor.measure,
    "spark": spark.measure,
    "spark_sink": spark_sink.measure,
    "lake": lake.measure,
    "pipeline": pipeline.measure,
    "sinks": sinks.measure,
    "sources": sources.measure,
    "copying": chaining.measure_copy,
    "chain": chaining.measure_lag,
    "leaders": chaining.measure_leaders,
}


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if name != "--save"]
    unknown = [name for name in names if name not in _SECTIONS]
    if unknown:
        sys.stderr.write(f"no such measurement: {unknown[0]}; there are {', '.join(_SECTIONS)}\n")
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
