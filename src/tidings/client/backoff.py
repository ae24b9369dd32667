"""How long to wait before the next attempt: 1 to 2 seconds, 2 to 4 ... 16 to 32, at random."""

from __future__ import annotations

import random
from collections.abc import Callable

from tidings.client.errors import BackoffFailed

DELAY_S_MIN = 2.0  # at most; a restarting server is back soon after
DELAY_S_MAX = 32.0  # a longer wait would be felt after an outage; a shorter one prolongs it


class Backoff:
    """
    Delays at most *min_s*, doubled with each up to *max_s*; *retries* bounds them, None: never.

    Half of each delay is random, so that clients cut together do not come back together.
    """

    def __init__(
        self,
        min_s: float = DELAY_S_MIN,
        max_s: float = DELAY_S_MAX,
        retries: int | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < min_s <= max_s:
            raise ValueError(f"must be 0 < min_timeout_s <= max_timeout_s, not {min_s}, {max_s}")
        self._min_s, self._max_s, self._retries = min_s, max_s, retries
        self._chance = chance
        self._attempts = 0

    def next_s(self) -> float:
        """
        Seconds until the next attempt; longer each time until `reset`.

        Raises:
            BackoffFailed: there were as many retries as are allowed.
        """
        if self._retries is not None and self._attempts >= self._retries:
            raise BackoffFailed("Backoff failed")
        longest_s = min(self._max_s, self._min_s * 2.0 ** min(self._attempts, 64))
        self._attempts += 1
        return longest_s * (1.0 + self._chance()) / 2.0

    def reset(self) -> None:
        """Something arrived: the next delay is short again."""
        self._attempts = 0
