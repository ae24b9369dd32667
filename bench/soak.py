"""Put load on a host for a long time, with faults, to find losses and growing memory.

    python -m bench.soak                  a server, half an hour
    python -m bench.soak --on twin --seconds 60

The load generator compares the events of its consumers with the posts. In addition, a `Fold`
compares itself with the checksums of the feed, all the time.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop

from tests.proxy import Proxy
from tests.twin import Twin
from tidings.client import Fold
from tidings.client.errors import ClientError
from tidings.server.running import Server

from . import results
from .loading import reporting, running
from .loading.faults import KILL, Faults, NotFired, kinds
from .loading.ledger import Place, Plan
from .loading.recorder import Interval
from .loading.running import Run, Unheard
from .results import Section

SECONDS = 1_800
GROWTH_MAX = 1.25  # of the largest process of a kind after the warm-up ...
GROWTH_MB_MAX = 24  # ... and memory that the garbage collector may not have freed yet
_EVERY_S = 30.0  # between faults; a disconnected consumer retries within two seconds
_CALM_S = 0.9  # the last tenth is without faults, for all consumers to return
_KILLS_S = 0.34  # of the time; processes that are not killed later show if they grow
_CHECK_EVERY_S = 5.0
_WARM_MIN = 4  # intervals, to decide whether a process grows
_NO_FUNCTIONS = ("engine", "gateway", "generator")
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Load:
    """The operations per second and per request, and the number of consumers."""

    rate: float
    batch: int
    consumers: int


HOSTS: Mapping[str, tuple[type[Server], Load]] = {
    "server": (Server, Load(500.0, 25, 4)),
    # The store should be the bottleneck, not Python.
    "twin": (Twin, Load(10.0, 5, 8)),
}


@dataclass(slots=True)
class Soak:
    """A run on *host* with the faults that fired; *wanted* are the required kinds. *compared*
    counts the comparisons of a fold with the checksums; *wrong* are the buckets that differed.
    """

    host: str
    run: Run
    fired: list[tuple[float, str, str]]
    wanted: frozenset[str]
    compared: int = 0
    wrong: Sequence[int] = ()

    def of_kind(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.fired)


class _Folding(threading.Thread):
    """A copy that compares and repairs itself until it is closed."""

    def __init__(self, url: str, ws_url: str) -> None:
        super().__init__(daemon=True)
        self.wrong: list[int] = []
        self.fold = Fold(
            url, ws_url=ws_url, check_every_s=_CHECK_EVERY_S, on_wrong=self.wrong.append
        )

    def run(self) -> None:
        for _ in self.fold:
            pass

    def close(self) -> None:
        self.fold.close()
        self.join()


def soak(
    seconds: float,
    *,
    on: str = "server",
    rate: float | None = None,
    every_s: float = _EVERY_S,
    quiet: bool = False,
) -> Soak:
    """Put load on a host that keeps its data, with a fault each *every_s*; *rate* operations a
    second.

    Raises:
        NotFired: a fault had no visible effect.
    """
    kind, load = HOSTS[on]
    plan = Plan(
        secrets.token_hex(4),
        rate=rate or load.rate,
        batch=load.batch,
        consumers=load.consumers,
        churn=6.0,
        duration_s=seconds,
    )
    with (
        tempfile.TemporaryDirectory(prefix="tidings-soak-") as folder,
        kind(data=Path(folder)) as host,
    ):
        return uvloop.run(_soaked(on, host, plan, every_s, quiet))


async def _soaked(name: str, host: Server, plan: Plan, every_s: float, quiet: bool) -> Soak:
    proxy = Proxy(host.port)
    fired: list[tuple[float, str, str]] = []
    order = _order(kinds(host), plan.duration_s, every_s)

    async def beside(run: Run) -> None:
        await _fires(run, Faults(host, proxy, plan.seed), every_s, order, fired)

    async with proxy.serving():
        place = Place(f"http://127.0.0.1:{proxy.port}", ws_url=f"ws://127.0.0.1:{proxy.port}/ws")
        folding = await asyncio.to_thread(_Folding, place.url, str(place.ws_url))
        folding.start()
        try:
            found = await running.run(
                plan,
                place,
                interval_s=max(5.0, plan.duration_s / 15),
                pid=lambda: host.pid if host.is_started else 0,
                tick=_silent if quiet else _print_progress,
                beside=beside,
            )
            await asyncio.sleep(2 * _CHECK_EVERY_S)  # for comparisons once nothing changes
        finally:
            await asyncio.to_thread(folding.close)
    return Soak(name, found, fired, frozenset(kinds(host)), folding.fold.compared, folding.wrong)


async def _fires(
    run: Run,
    befalling: Faults,
    every_s: float,
    order: Iterator[str],
    fired: list[tuple[float, str, str]],
) -> None:
    """Fire one fault after another until the calm phase. Kill the host only in the first third."""
    for number, kind in enumerate(order, 1):
        at_s = number * every_s
        await asyncio.sleep(max(0.0, run.began_s + at_s - time.monotonic()))
        what = await befalling.fire(kind)
        fired.append((at_s, kind, what))
        run.recorder.count(f"fault: {kind}")


def _order(wanted: Sequence[str], seconds: float, every_s: float) -> Iterator[str]:
    """Yield all kinds in turn, but KILL, the last one, only in the first phase."""
    count = int(seconds * _CALM_S / every_s)
    early, late = itertools.cycle(wanted), itertools.cycle(wanted[:-1])
    turns = len(wanted)
    kills = max(turns, int(seconds * _KILLS_S / every_s) // turns * turns)
    return itertools.islice(itertools.chain(itertools.islice(early, kills), late), count)


def grown(soaked: Soak) -> dict[str, tuple[int, int]]:
    """Return the first and last bytes per kind of process, after the warm-up and the last kill."""
    kills = [at_s for at_s, kind, _ in soaked.fired if kind == KILL]
    settled_s = max(kills, default=0.0)
    warm = [each for each in soaked.run.recorder.intervals if each.begins_s > settled_s][1:]
    if len(warm) < _WARM_MIN:
        return {}
    first, last = warm[0].memory, warm[-1].memory
    return {name: (first[name], last[name]) for name in sorted(first.keys() & last.keys())}


def met(soaked: Soak) -> bool:
    """Return True if nothing was lost or wrong, all faults fired, and no process grew too much."""
    return (
        not soaked.run.lost
        and not soaked.wrong
        and soaked.compared > 0
        and soaked.of_kind().keys() == soaked.wanted
        and all(
            last <= first * GROWTH_MAX + GROWTH_MB_MAX * _MB
            for first, last in grown(soaked).values()
        )
    )


def section(soaked: Soak, notes: Sequence[str] = ()) -> Section:
    """Return the section for the results."""
    told = reporting.section(soaked.run, "", "", notes)
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(soaked.of_kind().items()))
    sums = f"{soaked.compared:,} times; {len(soaked.wrong)} buckets differed"
    rows = [*told.rows, ("faults", faults), ("a fold compared itself with the sums", sums)]
    rows += [_interval(each) for each in soaked.run.recorder.intervals if each.latencies]
    rows += [
        (f"{name}, since the last kill", f"{_mb(first)}, then {_mb(last)}")
        for name, (first, last) in grown(soaked).items()
    ]
    return Section(
        f"Soak of a {soaked.host}: {soaked.run.plan.duration_s / 60:g} minutes of load with faults",
        "nothing lost, moved or altered; every fault fired; no process grows by more than "
        f"{GROWTH_MAX - 1:.0%} and {GROWTH_MB_MAX} MB once nothing is killed any more",
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


def _print_progress(run: Run) -> None:
    click.echo(reporting.progress(run), err=True)


def _silent(run: Run) -> None:
    pass


@click.command(context_settings={"max_content_width": 100, "show_default": True})
@click.option(
    "--seconds", default=SECONDS, type=click.FloatRange(min=20), help="Duration in seconds."
)
@click.option("--on", type=click.Choice(list(HOSTS)), default="server", help="Host to run on.")
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    help="Operations per second.  [default: 500 on a server, 10 on a twin]",
)
@click.option("--every", "every_s", default=_EVERY_S, help="Seconds between faults.")
@click.option("--save", is_flag=True, help="Write the result to bench/RESULTS.md.")
@click.option("--note", multiple=True, help="Remark for the results; may be repeated.")
def main(
    seconds: float, on: str, rate: float | None, every_s: float, save: bool, note: tuple[str, ...]
) -> None:
    """Put load on a host for a long time, kill it, cut it, stop its store, and check everything.

    \b
    Examples:
      python -m bench.soak --save
      python -m bench.soak --seconds 120 --every 10
      python -m bench.soak --on twin

    Exit codes: 0 nothing was lost and nothing grows, 1 otherwise, 2 wrong usage.
    """
    try:
        soaked = soak(seconds, on=on, rate=rate, every_s=every_s)
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
