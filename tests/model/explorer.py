"""Every interleaving of a few actors, each stopped before every effect it has on a store.

Threads and chance are excluded: a schedule is a list of choices, and a state is reached by
running its schedule from the start. Schedules that lead to the same state (the same stores,
and every actor having seen the same answers) continue alike, so each state is visited once and
the schedules through it are counted instead of run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet


class Broken(Exception):
    """An invariant does not hold; the message ends with the schedule."""


class Actor:
    """One process. Its observations and the stores determine its next step."""

    def __init__(self, name: str, body: Callable[[Actor], None], *, may_crash: bool) -> None:
        self.name, self.may_crash = name, may_crash
        self.seen: list[str] = []
        self.ended = ""
        self._hub = getcurrent()
        self._fiber = greenlet(lambda: body(self))

    def step(self) -> None:
        """Run the effect it waits for, and continue to the next."""
        self._fiber.switch()
        if self._fiber.dead:
            self.ended = "done"

    def crash(self) -> None:
        self._fiber.throw(GreenletExit)
        self.ended = "crashed"

    def through(self, target: object, *effects: str) -> Any:
        """Return *target*; its methods named in *effects* wait for their turn."""
        return _Turns(self, target, effects)

    def wait(self) -> None:
        self._hub.switch()


class _Turns:
    def __init__(self, actor: Actor, target: object, effects: tuple[str, ...]) -> None:
        self._actor, self._target, self._effects = actor, target, effects

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name not in self._effects:
            return method

        def effect(*args: Any, **named: Any) -> Any:
            self._actor.wait()
            result = method(*args, **named)
            self._actor.seen.append(f"{name}={result!r}")
            return result

        return effect


class World(Protocol):
    """The setup of a scenario, created again for each schedule."""

    actors: list[Actor]

    def stores(self) -> object:
        """Return everything the actors share, as a value with a `repr`."""
        ...

    def check(self) -> None:
        """Called after every step.

        Raises:
            Broken: an invariant does not hold.
        """
        ...


@dataclass
class Explored:
    """*schedules* is how many interleavings there are, *states* how many were looked at."""

    schedules: int = 0
    states: int = 0
    ends: int = 0
    deepest: int = 0
    _known: dict[str, int] = field(default_factory=dict)


Choice = tuple[int, bool]  # the actor, and True if it crashes instead of continuing


def explore(build: Callable[[], World], *, crashes_max: int) -> Explored:
    """Every schedule of what *build* sets up, with up to *crashes_max* crashes anywhere.

    Raises:
        Broken: with the first schedule that breaks an invariant.
    """
    sys.setrecursionlimit(10_000)
    explored = Explored()
    explored.schedules = _visit(build, (), _replay(build, ()), crashes_max, explored)
    return explored


def _visit(
    build: Callable[[], World],
    schedule: tuple[Choice, ...],
    world: World,
    crashes_max: int,
    explored: Explored,
) -> int:
    """Return the number of schedules that begin with *schedule*, which has led to *world*."""
    crashed = sum(actor.ended == "crashed" for actor in world.actors)
    choices = _choices(world.actors, crashed < crashes_max)
    key = repr((world.stores(), [(actor.seen, actor.ended) for actor in world.actors]))
    if key in explored._known:
        _drop(world)
        return explored._known[key]
    explored.states += 1
    explored.ends += not choices
    explored.deepest = max(explored.deepest, len(schedule))
    total = 0 if choices else 1
    for at, choice in enumerate(choices):
        # The first choice continues in *world*; a state cannot be copied for the others.
        after = _replay(build, (*schedule, choice)) if at else _continue(world, schedule, choice)
        total += _visit(build, (*schedule, choice), after, crashes_max, explored)
    explored._known[key] = total
    return total


def _choices(actors: list[Actor], may_crash: bool) -> list[Choice]:
    alive = [at for at, actor in enumerate(actors) if not actor.ended]
    crashing = [(at, True) for at in alive if may_crash and actors[at].may_crash]
    return [(at, False) for at in alive] + crashing


def _replay(build: Callable[[], World], schedule: tuple[Choice, ...]) -> World:
    world = build()
    for actor in world.actors:
        actor.step()  # up to its first effect
    for choice in schedule[:-1]:  # the states before the last were checked when they were new
        _take(world, choice)
    return _continue(world, schedule[:-1], schedule[-1]) if schedule else world


def _continue(world: World, schedule: tuple[Choice, ...], choice: Choice) -> World:
    """Return *world* after *choice*, which follows *schedule*."""
    try:
        _take(world, choice)
        world.check()
    except Broken as broken:
        steps = [
            f"{world.actors[at].name}{'!' if crashes else ''}"
            for at, crashes in (*schedule, choice)
        ]
        raise Broken(f"{broken}; schedule: {' '.join(steps)}") from None
    return world


def _take(world: World, choice: Choice) -> None:
    at, crashes = choice
    if crashes:
        world.actors[at].crash()
    else:
        world.actors[at].step()


def _drop(world: World) -> None:
    """Greenlets that never end would stay for ever."""
    for actor in world.actors:
        if not actor.ended:
            actor.crash()
