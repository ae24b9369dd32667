"""How long a poller pauses: not while functions run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.twin import clock
from tests.twin.clock import PollInterval

LONG_S = 30.0


def timed(scenario: Callable[[PollInterval], Awaitable[None]], idle_s: float = LONG_S) -> float:
    """Return how long *scenario* takes."""

    async def whole() -> float:
        loop = asyncio.get_running_loop()
        began, made = loop.time(), PollInterval(idle_s=idle_s)
        await asyncio.wait_for(scenario(made), LONG_S)
        return loop.time() - began

    return asyncio.run(whole())


def test_while_nothing_runs_pauses_are_long() -> None:
    """They are as long as AWS's pauses."""
    assert 0.1 <= timed(lambda made: made.pause(), idle_s=0.1) < 20
    assert clock.BUSY_S < clock.IDLE_S < 1


def test_everybody_who_pauses_goes_on_when_a_function_is_invoked() -> None:
    """All of them continue at once, however long they would have paused."""

    async def scenario(made: PollInterval) -> None:
        pausing = [asyncio.ensure_future(made.pause()) for _ in range(3)]
        await asyncio.sleep(0)
        made.stir()
        await asyncio.gather(*pausing)

    assert timed(scenario) < 20


def test_for_a_while_afterwards_pauses_are_short() -> None:
    """The writes of a function are in the stream a moment later."""

    async def scenario(made: PollInterval) -> None:
        made.stir()
        for _ in range(3):
            await made.pause()

    assert 3 * clock.BUSY_S <= timed(scenario) < 20
