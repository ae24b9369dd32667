"""Report a run: a progress line, a table, JSON, and a section of the results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..results import Section
from . import machine
from .recorder import KINDS, SHARES, Latencies
from .running import Run

_COUNTS = (
    "sent",
    "acknowledged",
    "unanswered",
    "retries",
    "heard",
    "caught up",
    "left",
    "connections lost",
)


def progress(run: Run) -> str:
    """Return the progress in one line, with the latencies of the current interval."""
    counted = run.recorder.counted
    parts = [
        f"{time.monotonic() - run.began_s:4.0f} s",
        f"sent {counted('sent'):,}",
        f"acknowledged {counted('acknowledged'):,}",
        f"heard {counted('heard'):,}",
    ]
    heard = run.recorder.current.heard
    parts.append(f"p50 {ms(heard.at(50))} p99 {ms(heard.at(99))}")
    parts.append(f"away {run.audience.away}")
    parts.append(f"behind {run.ledger.behind:,}")
    parts.append(f"violations {run.ledger.violations.count}")
    return "  ".join(parts)


def rows(run: Run) -> list[tuple[str, str]]:
    """Return names and figures."""
    found = [(kind, spread(run.recorder.whole(kind))) for kind in KINDS]
    found = [(kind, text) for kind, text in found if text]
    counts = {each: run.recorder.counted(each) for each in _COUNTS}
    found.append(("sent, in all", f"{counts['sent']:,} operations in {run.took_s:.0f} s"))
    found += [(each, f"{count:,}") for each, count in counts.items() if count and each != "sent"]
    found.append(("until all had received everything", f"{run.drained_s:.1f} s after the last one"))
    found.append(("violations", f"{run.lost}"))
    found.append(("load average of the machine before", f"{run.others:.1f}"))
    return found


def spread(latencies: Latencies) -> str:
    """Return the percentiles of one histogram; "" if it is empty."""
    if not latencies.count:
        return ""
    shares = [f"p{share:g} {ms(latencies.at(share))}" for share in SHARES]
    return ", ".join([*shares, f"max {ms(latencies.longest)}"])


def table(run: Run) -> str:
    """Return the table for a terminal."""
    found = [*rows(run), ("machine", machine.described())]
    width = max(len(what) for what, _ in found)
    lines = [f"{what:<{width}}  {figure}" for what, figure in found]
    return "\n".join([*lines, *(f"VIOLATION {each}" for each in run.violations)])


def as_json(run: Run) -> dict[str, Any]:
    """Return seconds and counts as JSON."""
    return {
        "machine": machine.described(),
        "seconds": round(run.took_s, 3),
        "counts": {each: run.recorder.counted(each) for each in _COUNTS},
        "latency_s": {kind: _percentiles(run.recorder.whole(kind)) for kind in KINDS},
        "violations": {"count": run.lost, "first": run.violations},
    }


def section(run: Run, title: str, target: str, notes: Sequence[str] = ()) -> Section:
    plan = run.plan
    asked = (
        f"{plan.producers} producers, requests of {plan.batch}; {plan.consumers} consumers over "
        f"{' and '.join(plan.transports)}, {plan.churn:g} a minute leave; {plan.objects} objects, "
        f"operations of {plan.size} bytes. Latencies count from when an operation was due. "
        f"{machine.described()}."
    )
    return Section(title, target, rows(run), met=run.lost == 0, notes=[asked, *notes])


def _percentiles(latencies: Latencies) -> dict[str, float]:
    if not latencies.count:
        return {}
    found = {f"p{share:g}": latencies.at(share) for share in SHARES}
    return {"count": latencies.count, **found, "max": latencies.longest}


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
