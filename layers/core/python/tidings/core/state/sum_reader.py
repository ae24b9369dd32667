"""What consumers are told of the sums of a state (PROTOCOL 20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.followers.names import STATE
from tidings.core.state.sums import ALL, MODULO, Sums, recalled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.followers.stores import Standings
    from tidings.core.state.stores import SumStore


@dataclass(frozen=True, slots=True)
class SumReader:
    store: SumStore
    followers: Standings

    def read(self, feed: str) -> Sums:
        """
        As of the last page that the state has handled, or one behind it.

        The checkpoint first: sums that are stored meanwhile are of a later page.
        """
        for lease in self.followers.standings(feed):
            if lease.name == STATE:
                sums = recalled(self.store.read(feed), lease.note, lease.checkpoint)
                return sums or Sums(lease.checkpoint, unknown=ALL)
        return Sums(0)


def of_types(sums: Sums, types: Iterable[str] | None) -> list[int | None]:
    """By bucket, of all of *types* together; None: of the whole feed. None is not known."""
    if types is None:
        return sums.whole
    each = [sums.of(name) for name in types]
    return [_together([of[bucket] for of in each]) for bucket in range(limits.BUCKETS)]


def _together(sums: list[int | None]) -> int | None:
    known = [each for each in sums if each is not None]
    return sum(known) % MODULO if len(known) == len(sums) else None
