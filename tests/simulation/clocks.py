"""Clocks: every process reads that of the sandbox it runs in, and no two need agree.

Any two are within `limits.CLOCK_SKEW_MS_MAX`, which is all that the feed asks of them. With
clocks in a wild world, processes that must not need a clock are minutes off until all is well
again: that may cost as much time again, and nothing else. Checkpoints of processes that have
ended arrive late there, because other processes take over their leases.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.faults import Faults
from tidings.core import limits

RATES: Final = {
    "wild_clock": 0.4,  # at each start of a process that must not depend on its clock
    "late_save": 0.03,  # a checkpoint arrives minutes after the process that saved it has ended
}
_SANDBOXES = 4  # of each function
WILD_MS_MAX: Final = 600_000
# They hold leases and hand over: their clocks may cost time, and nothing else. A process that
# answers with a cursor is missing: if the last page was removed, its second is the answer's.
_NEED_NONE: Final = frozenset({"follow-state", "follow-push", "connect"})


class Clocks:
    def __init__(self, random: Random, faults: Faults) -> None:
        self._random, self._faults = random, faults
        self.bound_ms = limits.CLOCK_SKEW_MS_MAX // 2 if faults.strikes("skew") else 0
        self._sandboxes: dict[str, list[int]] = {}

    def within(self, ms: int) -> None:
        """Limit the difference of any two clocks to *ms*, for a world of short ages."""
        self.bound_ms = min(self.bound_ms, ms // 2)

    def skew_ms(self, kind: str) -> int:
        """Return the error of the clock of a process of this *kind*, which starts now."""
        if kind in _NEED_NONE and self._faults.strikes("wild_clock"):
            return self._random.randint(-WILD_MS_MAX, WILD_MS_MAX)
        if not self.bound_ms:
            return 0
        if kind not in self._sandboxes:
            self._sandboxes[kind] = [self._draw() for _ in range(_SANDBOXES)]
        skew = self._random.choice(self._sandboxes[kind])
        self._faults.saw("clock was fast" if skew > 0 else "clock was slow")
        return skew

    def _draw(self) -> int:
        """Draw a deviation, often at the bound, because a bound is tested only there."""
        bound = self.bound_ms
        return self._random.choice((-bound, bound, self._random.randint(-bound, bound)))
