"""Serve several feeds in one invocation. The feeds share its time, but fail independently."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.effects import Clock


@dataclass(frozen=True, slots=True)
class Served:
    """The result of an invocation.

    *failed* has the error of each feed that could not be served. *not_begun* are the feeds that
    were not started before the deadline.
    """

    failed: dict[str, Exception] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)

    @property
    def again(self) -> frozenset[str]:
        """Return the feeds that must be served again."""
        return frozenset((*self.failed, *self.not_begun))

    def raise_mistakes(self) -> None:
        """Raise the errors that are bugs: all errors except `TidingsError`.

        Raises:
            Exception: the error, or a group of several errors; a note of each error names its feed.
        """
        mistakes = [each for each in self.failed.values() if not isinstance(each, TidingsError)]
        if len(mistakes) == 1:
            raise mistakes[0]
        if mistakes:
            raise ExceptionGroup(f"{len(mistakes)} feeds could not be served", mistakes)


def serve(
    feeds: Iterable[str], run: Callable[[str, int], object], *, clock: Clock, run_ms: int
) -> Served:
    """Call *run* for each feed, with the same deadline for all feeds: *run_ms* from now.

    No feed except the first is started after the deadline.
    """
    until_ms, served = clock() + run_ms, Served()
    for at, feed in enumerate(feeds):
        if at and clock() >= until_ms:
            served.not_begun.append(feed)
            continue
        try:
            run(feed, until_ms)
        except Exception as error:  # noqa: BLE001 (reported by `Served`: feeds fail independently)
            error.add_note(f"feed {feed}")
            served.failed[feed] = error
    return served


def in_turn(feeds: Iterable[str], turn: int) -> Sequence[str]:
    """Return *feeds* in order, beginning with another feed each *turn*, so that no feed starves."""
    ordered = sorted(feeds)
    first = turn % len(ordered) if ordered else 0
    return ordered[first:] + ordered[:first]
