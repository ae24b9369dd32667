"""
Rebuilding: rows of the state that are not as the log says are put right.

Each is compared and set: it is replaced only if it is still just what the verification found,
so nothing that the follower `state` writes meanwhile is overwritten. Killed at any moment and
run again, it ends the same. A row that is older than the log is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from tidings.core.maintenance.verify import Verifier
    from tidings.core.state.rows import StateStore


@dataclass(frozen=True, slots=True)
class Repaired:
    """Rows that stand as the log says, by this run or by others; *moved* ones changed meanwhile."""

    repaired: int
    moved: int

    def __add__(self, other: Repaired) -> Repaired:
        return Repaired(self.repaired + other.repaired, self.moved + other.moved)


@dataclass(frozen=True, slots=True)
class Rebuilder:
    verifier: Verifier
    repairs: StateStore

    def repair(self, bucket: int) -> Repaired:
        """
        Look at *bucket* once more and put right what differs.

        Raises:
            LogIncomplete, Unavailable: as `Verifier.compare`; what was repaired stays so.
        """
        differences = self.verifier.compare(bucket).differences
        repaired = 0
        for at in range(0, len(differences), limits.REPAIR_BATCH):
            batch = differences[at : at + limits.REPAIR_BATCH]
            repaired += sum(self.repairs.repair(self.verifier.feed, batch))
        return Repaired(repaired, len(differences) - repaired)
