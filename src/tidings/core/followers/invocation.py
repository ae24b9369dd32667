"""
One invocation that serves several feeds: they share its time, and each fails by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.effects import Clock


@dataclass(frozen=True, slots=True)
class Served:
    """*failed* is why a feed could not be served; for those *left* there was no time."""

    failed: dict[str, Exception] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    @property
    def again(self) -> frozenset[str]:
        """Those that are to come again."""
        return frozenset((*self.failed, *self.left))

    def raise_mistakes(self) -> None:
        """
        What `TidingsError` does not stand for is a mistake of ours, for the operator to see.

        Raises:
            Exception: the mistake, or a group of them; a note of each names its feed.
        """
        mistakes = [each for each in self.failed.values() if not isinstance(each, TidingsError)]
        if len(mistakes) == 1:
            raise mistakes[0]
        if mistakes:
            raise ExceptionGroup(f"{len(mistakes)} feeds could not be served", mistakes)


def serve(
    feeds: Iterable[str], run: Callable[[str, int], object], *, clock: Clock, run_ms: int
) -> Served:
    """
    *run* each feed until the one moment that is *run_ms* from now.

    A feed whose turn comes later than that is left. The first one is always begun.
    """
    until_ms, served = clock() + run_ms, Served()
    for at, feed in enumerate(feeds):
        if at and clock() >= until_ms:
            served.left.append(feed)
            continue
        try:
            run(feed, until_ms)
        except Exception as error:  # noqa: BLE001 (reported by `Served`: one feed's is not another's)
            error.add_note(f"feed {feed}")
            served.failed[feed] = error
    return served


def in_turn(feeds: Iterable[str], turn: int) -> Sequence[str]:
    """*feeds* in their order, with each *turn* another one first: who is busy starves no other."""
    ordered = sorted(feeds)
    first = turn % len(ordered) if ordered else 0
    return ordered[first:] + ordered[:first]
