"""The faults that a soak injects into a server or a twin, each with evidence that it happened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

from tests.proxy import Proxy
from tests.twin import Twin
from tests.twin.store import PREFIX
from tidings.server.processes import TERMINATE_S
from tidings.server.running import NotReady, Server

from . import machine

PAUSE_S = 3.0  # longer than a request's timeout, shorter than a function's
_LOOK_S = 0.02
_STARTS_MAX = 3

KILL = "everything killed"
KILL_FUNCTION = "function killed"
CUT = "connections cut"
PAUSE = "store paused"


def kinds(host: Server) -> tuple[str, ...]:
    """Return the faults for *host*. A server is one process, including its store."""
    return (KILL_FUNCTION, CUT, PAUSE, KILL) if isinstance(host, Twin) else (CUT, PAUSE, KILL)


class NotFired(Exception):
    """A fault had no visible effect, so the soak would prove nothing."""


class Faults:
    """The faults for *host*, with clients connected through *proxy*."""

    def __init__(self, host: Server, proxy: Proxy, seed: int) -> None:
        self._host, self._proxy = host, proxy
        self._chance = random.Random(seed)

    async def fire(self, kind: str) -> str:
        """Inject a fault, wait for its effect, and return a short description.

        Raises:
            NotFired: the effect did not appear.
        """
        if kind == KILL:
            return await self._kill()
        if kind == KILL_FUNCTION:
            return await self._kill_function()
        if kind == PAUSE:
            return await self._pause()
        return self._cut()

    async def _kill(self) -> str:
        """Kill all processes at once, as when a machine crashes, and start the host on its data."""
        family = machine.family(self._host.pid)
        await asyncio.to_thread(self._host.kill)
        await _until(lambda: not any(map(_runs, family)), f"of {len(family)} processes some live")
        await asyncio.to_thread(self._start)
        return f"{len(family)} processes"

    def _start(self) -> None:
        """Start the host. Retry: on a busy machine the store may exceed its start timeout."""
        for _ in range(_STARTS_MAX - 1):
            with contextlib.suppress(NotReady):
                self._host.start()
                return
        self._host.start()

    async def _kill_function(self) -> str:
        called = {each: machine.called(each) for each in machine.family(self._host.pid)}
        functions = sorted(pid for pid, name in called.items() if name.startswith(PREFIX))
        if not functions:
            raise NotFired("no function runs")
        pid = self._chance.choice(functions)
        os.kill(pid, signal.SIGKILL)
        await _until(lambda: not _runs(pid), f"{called[pid]} lives")
        return called[pid].removeprefix(PREFIX)

    async def _pause(self) -> str:
        family = machine.family(self._host.pid)
        engines = [each for each in family if machine.called(each) == "engine"]
        pid = engines[0] if engines else self._host.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await _until(lambda: machine.state(pid) == "T", "the store was not stopped")
            await asyncio.sleep(PAUSE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        await _until(lambda: machine.state(pid) in "RSD", "the store does not continue")
        return f"for {PAUSE_S:g} s"

    def _cut(self) -> str:
        cut = self._proxy.cut()
        if not cut:
            raise NotFired("nobody was connected")
        return f"{cut}"


def _runs(pid: int) -> bool:
    return machine.state(pid) not in ("", "Z", "X")


async def _until(done: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + 5 * TERMINATE_S
    while not done():
        if time.monotonic() > until:
            raise NotFired(otherwise)
        await asyncio.sleep(_LOOK_S)
