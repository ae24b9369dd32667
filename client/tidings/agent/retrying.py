"""How long to wait for the target: oplog's 0.5 s, half as much again each time, up to 60 s."""

from __future__ import annotations

import random
from collections.abc import Callable

DELAY_S_MIN = 0.5  # a throttled feed is back by then
DELAY_S_MAX = 60.0  # a target that is back is found within this and a half
_GROWTH = 1.5


class Retrying:
    """Each delay is up to half longer or shorter, so that agents do not come back together."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._delay_s = DELAY_S_MIN

    def next_s(self) -> float:
        """Seconds until the next attempt; longer each time until `reset`."""
        delay_s = self._delay_s
        self._delay_s = min(delay_s * _GROWTH, DELAY_S_MAX)
        return delay_s * (0.5 + self._chance())

    def reset(self) -> None:
        """The target answered: the next delay is short again."""
        self._delay_s = DELAY_S_MIN
