"""What consumers are told of the sums of a state (PROTOCOL 20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.followers.names import STATE
from tidings.core.state.sums import ALL, MODULO, SUM_BYTES, Sums, recalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.followers.stores import Standings
    from tidings.core.state.stores import SumStore


@dataclass(frozen=True, slots=True)
class ToldSums:
    """The sums of the state behind page *page*, by bucket; None where one is not known."""

    page: int
    sums: Sequence[int | None]

    def told(self) -> dict[str, Any]:
        """As JSON has them."""
        sums = [None if each is None else f"{each:0{2 * SUM_BYTES}x}" for each in self.sums]
        return {"page": self.page, "sums": sums}

    @staticmethod
    def of_told(told: Any) -> ToldSums:
        """
        Raises:
            KeyError, TypeError, ValueError: it is not what `told` made.
        """
        sums = [None if each is None else int(each, 16) for each in told["sums"]]
        if len(sums) != limits.BUCKETS:
            raise ValueError(f"{len(sums)} sums, and not {limits.BUCKETS}")
        return ToldSums(int(told["page"]), sums)

    def differing(self, sums: Sequence[int | None]) -> list[int]:
        """The buckets of which both know the sum, and another one."""
        pairs = enumerate(zip(self.sums, sums, strict=True))
        return [bucket for bucket, (one, two) in pairs if None not in (one, two) and one != two]


def _ignore(feed: str) -> None:
    """The sums are kept whether or not anybody asks."""


@dataclass(frozen=True, slots=True)
class SumReader:
    """*asked* is called with each feed whose sums somebody asks for."""

    store: SumStore
    followers: Standings
    asked: Callable[[str], None] = _ignore

    def read(self, feed: str) -> Sums:
        """
        As of the last page that the state has handled, or one behind it.

        The checkpoint first: sums that are stored meanwhile are of a later page.
        """
        self.asked(feed)
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
