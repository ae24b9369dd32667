"""Random delays before the next attempt: 1 to 2 seconds, then 2 to 4, up to 16 to 32."""

from __future__ import annotations

import random
from collections.abc import Callable

from tidings.client.errors import BackoffFailed

DELAY_S_MIN = 2.0  # upper bound of the first delay; a restarting server is back soon after
DELAY_S_MAX = 32.0  # users notice longer waits after an outage; shorter ones prolong it


class Backoff:
    """
    Random delays: the first at most *min_s*, each next bound doubled, up to *max_s*.

    *retries* limits the number of delays; None is unlimited. Half of each delay is random, so that
    clients that were disconnected together do not reconnect together.
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
        Return the seconds until the next attempt; they grow until `reset`.

        Raises:
            BackoffFailed: the allowed number of retries is used up.
        """
        if self._retries is not None and self._attempts >= self._retries:
            raise BackoffFailed("Backoff failed")
        longest_s = min(self._max_s, self._min_s * 2.0 ** min(self._attempts, 64))
        self._attempts += 1
        return longest_s * (1.0 + self._chance()) / 2.0

    def reset(self) -> None:
        """Make the next delay short again, because something was received."""
        self._attempts = 0
