"""Run the simulation for a long time: every kind of world in its share, on all cores, in parts.

    python -m bench.simulation --seeds 2000          the seeds from 0 on
    python -m bench.simulation --minutes 60 --save   continue after the last part
    python -m bench.simulation --seeds 500 --world relays

`bench/simulation.json` records the finished parts.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from tests.simulation.__main__ import report
from tests.simulation.run import Failed, Plan, run

from . import results
from .results import Section

KEPT = Path(__file__).parent / "simulation.json"
FIRST_KEPT = 1_000_000  # for long runs; tests and short runs use smaller seeds
# The shares are relative to the plain world, by the cost of a seed and the bugs it can find.
WORLDS: Mapping[str, tuple[Plan, float]] = {
    "plain": (Plan(0), 1),
    "copies": (Plan(0, copies=True), 0.1),
    "copies with an archive": (Plan(0, copies=True, archive=True), 0.05),
    "copies, retention raised": (Plan(0, copies=True, raised=True), 0.05),
    "syncs": (Plan(0, syncs=True), 0.2),
    "listeners": (Plan(0, listeners=True), 0.2),
    "named consumers": (Plan(0, consumers=True), 0.2),
    "relays": (Plan(0, relays=True), 0.1),
    "erasures of a server": (Plan(0, server=True, erasures=True), 0.1),
    "feeds that are created and deleted": (Plan(0, server=True, owners=True), 0.1),
    "a throttled feed": (Plan(0, feeds=True), 0.1),
    "clocks hours off": (Plan(0, clocks=True), 0.1),
    "a consumer that is held": (Plan(0, volume=True), 0.05),
    "late frames": (Plan(0, frames=True), 0.1),
    "lanes of push": (Plan(0, lanes=True), 0.1),
    "keys that are revoked": (Plan(0, keys=True), 0.1),
    "the server": (Plan(0, server=True), 0.2),
}
SHARES = {world: share for world, (_, share) in WORLDS.items()}
TARGET = 100_000
_TASK = 10  # seeds: one minute at most
_PART = 500  # seeds of the plain world: a few minutes, saved even if a later part fails
_REPORT_S = 5.0
_ENOUGH = 100  # seeds after which every possible fault must have occurred


@dataclass(slots=True)
class WorldCounters:
    """The counters for one kind of world."""

    seeds: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    expected: set[str] = field(default_factory=set)

    def add(self, other: WorldCounters) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.fired += other.fired
        self.expected |= other.expected

    def never(self) -> list[str]:
        """Return the faults that should have occurred by now, but did not."""
        return sorted(self.expected - set(self.fired)) if self.seeds >= _ENOUGH else []


@dataclass(frozen=True, slots=True)
class Task:
    world: str
    first: int
    seeds: int


class Broke(Exception):
    """A seed broke a promise; the text explains how to reproduce it."""


def tasks(seeds: int, first: int, shares: Mapping[str, float] = SHARES) -> Iterator[Task]:
    """Yield tasks for each world's share of *seeds*, with all kinds from the start."""
    parts = math.ceil(seeds / _TASK)
    given = dict.fromkeys(shares, 0)
    for number in range(1, parts + 1):
        for world, share in shares.items():
            due = math.ceil(min(number * _TASK, seeds) * share) - given[world]
            if due > 0 and (due >= _TASK or number == parts):
                yield Task(world, first + given[world], due)
                given[world] += due


def done(task: Task) -> WorldCounters:
    """Run *task* and return its counters.

    Raises:
        Broke: a seed broke a promise.
    """
    began, counters = time.process_time(), WorldCounters()
    for seed in range(task.first, task.first + task.seeds):
        try:
            outcome = run(replace(WORLDS[task.world][0], seed=seed))
        except Failed as failed:
            raise Broke(report(failed)) from None
        counters.seeds += 1
        counters.steps += outcome.steps
        counters.fired += outcome.fired
        counters.expected |= outcome.expected
    counters.cpu_s = time.process_time() - began
    return counters


def simulate(
    seeds: int, first: int, shares: Mapping[str, float], *, until: float = math.inf
) -> dict[str, WorldCounters]:
    """Run worlds on all cores. Return their counters. No task starts after *until* (monotonic
    clock).

    Raises:
        Broke: a seed broke a promise.
    """
    began = reported_s = time.monotonic()
    found = {world: WorldCounters() for world in shares}
    waiting = tasks(seeds, first, shares)
    jobs = os.cpu_count() or 1
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        running: dict[Future[WorldCounters], str] = {}
        while True:
            while len(running) < jobs and (task := next(waiting, None)) is not None:
                running[pool.submit(done, task)] = task.world
            if not running:
                return found
            finished, _ = wait(running, timeout=_REPORT_S, return_when=FIRST_COMPLETED)
            for each in finished:
                found[running.pop(each)].add(each.result())
            now = time.monotonic()
            if now > until:
                waiting = iter(())
            if now - reported_s > _REPORT_S:
                reported_s = now
                count = sum(each.seeds for each in found.values())
                steps = sum(each.steps for each in found.values())
                click.echo(f"{count:,} seeds, {steps:,} steps, {now - began:,.0f} s", err=True)


def simulate_in_parts(
    seeds: int, kept: dict[str, Any], *, until: float
) -> dict[str, WorldCounters]:
    """Run like `simulate`, after the parts in *kept*; add each part to it when it is done.

    Raises:
        Broke: a seed broke a promise. The earlier parts were saved.
    """
    found = {world: WorldCounters() for world in SHARES}
    first = kept["next"]
    for begun in range(0, seeds, _PART):
        if time.monotonic() > until:
            break
        part = simulate(min(_PART, seeds - begun), first + begun, SHARES, until=until)
        for world, counters in part.items():
            found[world].add(counters)
        add_part(kept, part)
        _keep(kept)
    return found


def section(kept: Mapping[str, Any]) -> Section:
    """Return the section about all parts."""
    worlds: Mapping[str, Mapping[str, Any]] = kept["worlds"]
    seeds = sum(each["seeds"] for each in worlds.values())
    struck: Counter[str] = Counter()
    for each in worlds.values():
        struck += Counter(each["fired"])
    rows = [
        (world, f"{each['seeds']:,} seeds, {each['steps']:,} steps, {each['cpu_s']:,.0f} CPU s")
        for world, each in worlds.items()
    ]
    rows += [
        ("together", f"{seeds:,} seeds"),
        (
            "faults, and what they led to",
            ", ".join(f"{k} {n:,}" for k, n in sorted(struck.items())),
        ),
    ]
    target = f"{TARGET:,} seeds in parts, and no promise broken"
    return Section("The simulation at length", target, rows, met=seeds >= TARGET)


def _kept() -> dict[str, Any]:
    if KEPT.exists():
        found: dict[str, Any] = json.loads(KEPT.read_text())
        return found
    return {"next": FIRST_KEPT, "worlds": {}}


def _keep(kept: dict[str, Any]) -> None:
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    shown = section(kept)
    results.save({shown.title: shown.markdown()})


def add_part(kept: dict[str, Any], found: Mapping[str, WorldCounters]) -> None:
    """Add *found* to *kept*, the sum of the earlier parts."""
    for world, counters in found.items():
        earlier = kept["worlds"].get(world, {"seeds": 0, "steps": 0, "cpu_s": 0, "fired": {}})
        kept["worlds"][world] = {
            "seeds": earlier["seeds"] + counters.seeds,
            "steps": earlier["steps"] + counters.steps,
            "cpu_s": round(earlier["cpu_s"] + counters.cpu_s),
            "fired": dict(Counter(earlier["fired"]) + counters.fired),
        }
    kept["next"] += max(counters.seeds for counters in found.values())


@click.command(context_settings={"max_content_width": 100, "show_default": True})
@click.option("--seeds", default=TARGET, type=click.IntRange(min=1), help="Number of plain worlds.")
@click.option("--minutes", default=0.0, help="Start no world after these; 0: run all.")
@click.option(
    "--world", "worlds", multiple=True, type=click.Choice(list(WORLDS)), help="Run this world only."
)
@click.option("--save", is_flag=True, help="Continue after the last part, and save each one.")
def main(seeds: int, minutes: float, worlds: tuple[str, ...], save: bool) -> None:
    """Run many seeds of every kind of world; stop at the first that breaks a promise.

    \b
    Examples:
      python -m bench.simulation --seeds 2000
      python -m bench.simulation --minutes 60 --save
        python -m bench.simulation --seeds 500 --world relays

    Exit codes: 0 every promise was kept, 1 one was not or a fault never struck, 2 wrong usage.
    """
    if worlds and save:
        raise click.UsageError("use --world without --save")
    until = time.monotonic() + minutes * 60 if minutes else math.inf
    try:
        if save:
            found = simulate_in_parts(seeds, _kept(), until=until)
        else:
            found = simulate(seeds, 0, dict.fromkeys(worlds, 1.0) or SHARES, until=until)
    except Broke as broke:
        click.echo(str(broke), err=True)
        sys.exit(1)
    for world, counters in found.items():
        click.echo(f"{world:26} {counters.seeds:7,} seeds {counters.steps:13,} steps")
    if never := {world: counters.never() for world, counters in found.items() if counters.never()}:
        raise click.ClickException(f"never met: {never}")


if __name__ == "__main__":
    main()
