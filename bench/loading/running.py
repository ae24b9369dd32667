"""Run a plan: consumers listen, producers follow the schedule, and the results are compared."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidings.client.poster import encode

from . import clients, machine
from .clients import BEGIN, Producer, Sender, StreamCounter
from .ledger import Ledger, Place, Plan
from .recorder import Recorder

FIRST_S = 20.0  # later, the address is wrong or the server is not running
LISTEN_S = 90.0  # for a cold function, a reconnect, and a busy machine
DRAIN_S = 120.0  # the last disconnected consumer waits up to half a minute before it reconnects
TICK_S = 1.0
_LOOK_S = 0.1
_BATCH = 500


class Unheard(Exception):
    """A consumer did not receive the first operation, so nothing was measured."""


@dataclass(slots=True)
class Run:
    """A run of *plan* at *place*, with its results. *others* is the load average of this machine
    before it started.
    """

    plan: Plan
    place: Place
    recorder: Recorder = field(default_factory=Recorder)
    ledger: Ledger = field(init=False)
    audience: StreamCounter = field(init=False)
    began_s: float = 0.0
    took_s: float = 0.0
    drained_s: float = 0.0
    others: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def violations(self) -> list[str]:
        return self.ledger.violations.told

    @property
    def lost(self) -> int:
        return self.ledger.violations.count


Tick = Callable[[Run], None]
Beside = Callable[[Run], Coroutine[Any, Any, None]]


async def _nothing(run: Run) -> None:
    pass


async def run(
    plan: Plan,
    place: Place,
    *,
    interval_s: float = 60.0,
    pid: Callable[[], int] = lambda: 0,
    tick: Tick = lambda run: None,
    beside: Beside = _nothing,
) -> Run:
    """Run *plan*. Call *tick* each second. Run the coroutine *beside* in parallel to the schedule
    and wait for its end. *pid* is a process; the memory of its family is recorded as well as our
    own.

    Raises:
        Refused: the feed refuses a producer or a consumer.
        Unheard: a consumer received nothing.
    """
    found = Run(plan, place)
    sender = Sender(place, plan.producers)
    try:
        await _begins(found, sender)
        observer = asyncio.create_task(_observe(found, interval_s, pid, tick))
        try:
            await _carries_out(found, sender, beside)
            await _drains(found)
        finally:
            observer.cancel()
            await asyncio.wait({observer})
        found.recorder.closes(_memory(pid), os.getloadavg()[0])
        await found.audience.ends()
        found.ledger.closes()
        state = await clients.state(place, plan)
        found.ledger.compares(state)
        await _clears(found, sender, sorted(state.keys() | found.ledger.objects.keys() | {BEGIN}))
    finally:
        await sender.close()
    return found


async def _begins(found: Run, sender: Sender) -> None:
    """Post one operation to define the start, and a second one to check that all consumers
    listen."""
    marker = [encode({"event": "update", "type": found.plan.type, "id": BEGIN})]
    (first,) = await sender.post(marker, f"load-{found.plan.run}-first", give_up_s=FIRST_S)
    found.ledger = Ledger(found.plan, first)
    found.audience = StreamCounter(found.plan, found.place, found.ledger, found.recorder)
    found.audience.comes()
    await sender.post(marker, f"load-{found.plan.run}-second")
    try:
        await found.audience.listens(LISTEN_S)
    except TimeoutError:
        raise Unheard(f"a consumer received nothing within {LISTEN_S:.0f} s") from None


async def _carries_out(found: Run, sender: Sender, beside: Beside) -> None:
    found.began_s = found.audience.began_s = began_s = time.monotonic()
    producers = [Producer(found.plan, each, sender) for each in range(found.plan.producers)]
    work: list[Awaitable[None]] = [
        each.run(began_s, found.ledger, found.recorder) for each in producers
    ]
    until_s = began_s + found.plan.duration_s
    await asyncio.gather(*work, found.audience.churns(until_s), beside(found))
    found.took_s = time.monotonic() - began_s


async def _drains(found: Run) -> None:
    """Wait until all consumers have received everything, or until the timeout."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + DRAIN_S:
        found.audience.check()
        if not found.ledger.unheard and not found.ledger.behind:
            break
        await asyncio.sleep(_LOOK_S)
    found.drained_s = time.monotonic() - began_s


async def _clears(found: Run, sender: Sender, objects: Sequence[str]) -> None:
    """Delete all objects of the run, because others may use the feed."""
    for at in range(0, len(objects), _BATCH):
        lines = [
            encode({"event": "delete", "type": found.plan.type, "id": each})
            for each in objects[at : at + _BATCH]
        ]
        await sender.post(lines, f"load-{found.plan.run}-clear-{at}")


async def _observe(found: Run, interval_s: float, pid: Callable[[], int], tick: Tick) -> None:
    turn_s = time.monotonic() + interval_s
    while True:
        await asyncio.sleep(TICK_S)
        found.audience.check()
        tick(found)
        if time.monotonic() >= turn_s:
            turn_s += interval_s
            found.recorder.closes(_memory(pid), os.getloadavg()[0])
            found.recorder.opens(time.monotonic() - found.began_s)


def _memory(pid: Callable[[], int]) -> Mapping[str, int]:
    """Return the memory of the family of *pid*, and our own."""
    others = machine.memory(found) if (found := pid()) else {}
    return others | {"generator": machine.resident(os.getpid())}
