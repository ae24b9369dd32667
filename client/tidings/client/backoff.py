"""How long to wait before the next attempt: 1 to 2 seconds, 2 to 4 ... 16 to 32, at random."""

from __future__ import annotations

import random
from collections.abc import Callable

DELAY_S_MIN = 1.0  # a restarting server is back soon after
DELAY_S_MAX = 32.0  # a longer wait would be felt after an outage; a shorter one prolongs it


class Backoff:
    """Half of each delay is random, so that clients cut together do not come back together."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._attempts = 0

    def next_s(self) -> float:
        """Seconds until the next attempt; longer each time until `reset`."""
        delay_s = min(DELAY_S_MIN * 2.0 ** min(self._attempts, 8), DELAY_S_MAX / 2)
        self._attempts += 1
        return delay_s * (1.0 + self._chance())

    def reset(self) -> None:
        """Something arrived: the next delay is short again."""
        self._attempts = 0
