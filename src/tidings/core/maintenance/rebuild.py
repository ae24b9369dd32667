"""
Rebuild: repair rows of the state that differ from the log.

Each repair is a compare-and-set. A row is replaced only if it still equals the row that the
verification found, so no concurrent write of the follower `state` is overwritten. A rebuild that is
killed and run again has the same result. A row that is older than the log is never changed.
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
    """
    The result of a repair: *repaired* rows now match the log.

    Another process changed the *moved* rows since the verification.
    """

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
        Verify *bucket* again and repair the differences.

        Raises:
            LogIncomplete, Unavailable: as `Verifier.compare`; completed repairs remain.
        """
        differences = self.verifier.compare(bucket).differences
        repaired = 0
        for at in range(0, len(differences), limits.REPAIR_BATCH):
            batch = differences[at : at + limits.REPAIR_BATCH]
            repaired += sum(self.repairs.repair(self.verifier.feed, batch))
        return Repaired(repaired, len(differences) - repaired)
