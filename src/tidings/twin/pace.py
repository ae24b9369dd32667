"""How often the pollers look at their streams: nobody waits for them while nothing runs."""

from __future__ import annotations

import asyncio

# AWS polls a shard 4 times a second. On a laptop nobody shares the stream, and a developer waits
# for every wake-up; each poll costs twin and engine some milliseconds.
IDLE_S = 0.25  # as AWS; so late is noticed what somebody writes past the functions
BUSY_S = 0.05  # while functions run
STIRRED_S = 1.0  # how long after a function began or ended: records follow a write at once


class Pace:
    """Functions stir it, pollers pause by it."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._stirred_at: float | None = None
        self._stirring = asyncio.Event()

    def stir(self) -> None:
        """Who pauses goes on at once."""
        self._stirred_at = asyncio.get_running_loop().time()
        self._stirring.set()
        self._stirring = asyncio.Event()

    async def pause(self) -> None:
        try:
            await asyncio.wait_for(self._stirring.wait(), self._length_s())
        except TimeoutError:
            return

    def _length_s(self) -> float:
        now = asyncio.get_running_loop().time()
        stirred = self._stirred_at is not None and now - self._stirred_at < STIRRED_S
        return BUSY_S if stirred else self._idle_s
