"""The feeds that the sweep visits. A feed without work costs nothing.

A feed becomes due when a number of its log is taken, and when an operator changes its profile, a
document or a consumer. The stores that a host provides mark the feed then. A feed also becomes due
at the time that its last visit has named, for example when its oldest page can be trimmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# A time in ms since 1970 at which a feed has to be visited again: at once, that is, by the next
# sweep. The time of a feed that needs no visit until something changes is None.
NEXT_SWEEP = 0


class Due(NamedTuple):
    """A feed to visit, because it was marked or because of the time *at_ms*, 0 for a mark.

    *version* changes if the feed is marked during the visit.
    """

    feed: str
    version: int = 0
    at_ms: int = NEXT_SWEEP


class DueFeeds(Protocol):
    """The feeds to visit, each with the time at which it becomes due.

    A mark is stored before, or together with, the change that needs a visit: a crash leaves no page
    of a feed that is not due. The cost of `due` does not grow with the number of other feeds.
    """

    def mark(self, feed: str) -> None:
        """Make *feed* due now. A visit that has begun before does not settle it."""

    def due(self, now_ms: int) -> Sequence[Due]:
        """Return the feeds that are due at *now_ms*, strongly consistent."""

    def settle(self, due: Due, next_ms: int | None, *, head: int) -> bool:
        """End a visit: the feed becomes due again at *next_ms*; if this is None, by a mark only.

        Return False and change nothing if the feed was marked after `due` returned *due*, or if a
        number after *head* was taken.
        """


def earliest(times: Collection[int | None]) -> int | None:
    """Return the first of *times*; None if all are None."""
    return min((each for each in times if each is not None), default=None)
