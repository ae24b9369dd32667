"""Lines for the operator: each kind at most once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 60.0  # an outage of one night is a few hundred lines, not a full disk


class Notices:
    """Rate-limited messages; *say* prints a line."""

    def __init__(
        self, say: Callable[[str], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._said_s: dict[str, float] = {}

    def tell(self, kind: str, line: str) -> None:
        """Print *line*, unless one of its *kind* was printed within the last minute."""
        now_s = self._monotonic()
        if now_s - self._said_s.get(kind, -EVERY_S) >= EVERY_S:
            self._said_s[kind] = now_s
            self._say(line)
