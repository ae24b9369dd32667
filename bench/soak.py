"""
Load for a long time, with faults: is anything lost, does anything grow?

    python -m bench.soak                  half an hour
    python -m bench.soak --seconds 60     a minute
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop
from tidings.client.errors import ClientError
from tidings.local.running import Twin

from . import results
from .loading import reporting, running
from .loading.faults import CUT, KILL, KILL_FUNCTION, KINDS, PAUSE, Faults, NotFired
from .loading.plan import Place, Plan
from .loading.proxy import Proxy
from .loading.recorder import Interval
from .loading.running import Run, Unheard
from .sections import Section

SECONDS = 1_800
GROWTH_MAX = 1.25  # of the largest process of a kind, once it is warm ...
GROWTH_MB_MAX = 24  # ... and what a collector of garbage may leave for later
_EVERY_S = 30.0  # a fault; a consumer that was cut tries again within two seconds
_CALM_S = 0.9  # the last tenth has none: everybody is to be back
_KILLS_S = 0.34  # of the time; processes that are never killed afterwards show whether they grow
_BATCH = 5  # operations a request: the store, not Python, is to be what limits
_WARM_MIN = 4  # intervals, to say whether anything grows
_NO_FUNCTIONS = ("engine", "gateway", "generator")
_MB = 1024 * 1024


@dataclass(slots=True)
class Soak:
    """A run and what befell it."""

    run: Run
    fired: list[tuple[float, str, str]]

    def of_kind(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.fired)


def soak(
    seconds: float, *, rate: float = 10.0, every_s: float = _EVERY_S, quiet: bool = False
) -> Soak:
    """
    Load on a twin that keeps its data, with a fault each *every_s*.

    Raises:
        NotFired: a fault cannot be seen to have happened.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tidings-soak-") as name,
        Twin(data=Path(name)) as twin,
    ):
        return uvloop.run(_soaked(twin, seconds, rate, every_s, quiet))


async def _soaked(twin: Twin, seconds: float, rate: float, every_s: float, quiet: bool) -> Soak:
    plan = Plan(secrets.token_hex(4), rate=rate, batch=_BATCH, churn=6.0, duration_s=seconds)
    proxy = Proxy(twin.port)
    fired: list[tuple[float, str, str]] = []

    async def beside(run: Run) -> None:
        await _fires(run, Faults(twin, proxy, plan.seed), every_s, fired)

    async with proxy.serving():
        place = Place(f"http://127.0.0.1:{proxy.port}", ws_url=f"ws://127.0.0.1:{proxy.port}/ws")
        found = await running.run(
            plan,
            place,
            interval_s=max(5.0, seconds / 15),
            pid=lambda: twin.pid if twin.is_started else 0,
            tick=_silent if quiet else _tell,
            beside=beside,
        )
    return Soak(found, fired)


async def _fires(
    run: Run, befalling: Faults, every_s: float, fired: list[tuple[float, str, str]]
) -> None:
    """One fault after the other until the calm; the twin is killed in the first third alone."""
    for number, kind in enumerate(_order(run.plan.duration_s, every_s), 1):
        at_s = number * every_s
        await asyncio.sleep(max(0.0, run.began_s + at_s - time.monotonic()))
        what = await befalling.fire(kind)
        fired.append((at_s, kind, what))
        run.recorder.count(f"fault: {kind}")


def _order(seconds: float, every_s: float) -> Iterator[str]:
    count = int(seconds * _CALM_S / every_s)
    early = itertools.cycle((KILL_FUNCTION, CUT, PAUSE, KILL))
    late = itertools.cycle((CUT, PAUSE, KILL_FUNCTION))
    kills = max(4, int(seconds * _KILLS_S / every_s) // 4 * 4)
    return itertools.islice(itertools.chain(itertools.islice(early, kills), late), count)


def grown(soaked: Soak) -> dict[str, tuple[int, int]]:
    """First and last bytes of each kind of process, once warm and not killed any more."""
    kills = [at_s for at_s, kind, _ in soaked.fired if kind == KILL]
    settled_s = max(kills, default=0.0)
    warm = [each for each in soaked.run.recorder.intervals if each.begins_s > settled_s][1:]
    if len(warm) < _WARM_MIN:
        return {}
    first, last = warm[0].memory, warm[-1].memory
    return {name: (first[name], last[name]) for name in sorted(first.keys() & last.keys())}


def met(soaked: Soak) -> bool:
    """Nothing lost, every kind of fault fired, no memory grown beyond what is allowed."""
    return (
        not soaked.run.lost
        and soaked.of_kind().keys() == set(KINDS)
        and all(
            last <= first * GROWTH_MAX + GROWTH_MB_MAX * _MB
            for first, last in grown(soaked).values()
        )
    )


def section(soaked: Soak, notes: Sequence[str] = ()) -> Section:
    """What to put into the results."""
    told = reporting.section(soaked.run, "", "", notes)
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(soaked.of_kind().items()))
    rows = [*told.rows, ("faults", faults)]
    rows += [_interval(each) for each in soaked.run.recorder.intervals if each.latencies]
    rows += [
        (f"{name}, since the last kill of the twin", f"{_mb(first)}, then {_mb(last)}")
        for name, (first, last) in grown(soaked).items()
    ]
    return Section(
        f"Soak: {soaked.run.plan.duration_s / 60:g} minutes of load with faults",
        "nothing lost, moved or altered; every fault fired; no process grows by more than "
        f"{GROWTH_MAX - 1:.0%} and {GROWTH_MB_MAX} MB once the twin is not killed any more",
        rows,
        met=met(soaked),
        notes=told.notes,
    )


def _interval(each: Interval) -> tuple[str, str]:
    heard, memory = each.heard, each.memory
    functions = [size for name, size in memory.items() if name not in _NO_FUNCTIONS]
    fired = sum(count for what, count in each.counts.items() if what.startswith("fault"))
    figures = [
        f"heard p50 {reporting.ms(heard.at(50))}, p99 {reporting.ms(heard.at(99))}",
        *(f"{name} {_mb(memory[name])}" for name in _NO_FUNCTIONS if name in memory),
        f"largest function {_mb(max(functions, default=0))}",
        f"{fired} faults",
        f"load {each.load:.1f}",
    ]
    return f"from {each.begins_s:,.0f} s", "; ".join(figures)


def _mb(size: int) -> str:
    return f"{size / _MB:,.0f} MB"


def _tell(run: Run) -> None:
    click.echo(reporting.progress(run), err=True)


def _silent(run: Run) -> None:
    pass


@click.command(context_settings={"max_content_width": 100, "show_default": True})
@click.option("--seconds", default=SECONDS, type=click.FloatRange(min=20), help="How long.")
@click.option("--rate", default=10.0, type=click.FloatRange(min=1), help="Operations a second.")
@click.option("--every", "every_s", default=_EVERY_S, help="Seconds from fault to fault.")
@click.option("--save", is_flag=True, help="Put the result into bench/RESULTS.md.")
@click.option("--note", multiple=True, help="What else the results should say; may be repeated.")
def main(seconds: float, rate: float, every_s: float, save: bool, note: tuple[str, ...]) -> None:
    """
    Put load on a twin for a long time, kill it, cut it, stop its store, and check everything.

    \b
    Examples:
      python -m bench.soak --save
      python -m bench.soak --seconds 120 --every 10

    Exit codes: 0 nothing was lost and nothing grows, 1 otherwise, 2 wrong usage.
    """
    try:
        soaked = soak(seconds, rate=rate, every_s=every_s)
    except (ClientError, Unheard, NotFired) as error:
        raise click.ClickException(str(error)) from None
    shown = section(soaked, note)
    if save:
        results.save({shown.title: shown.markdown()})
    click.echo(shown.markdown())
    for each in soaked.run.violations:
        click.echo(f"VIOLATION {each}", err=True)
    if not met(soaked):
        sys.exit(1)


if __name__ == "__main__":
    main()
