"""The feeds that a sweep visits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from tidings.core.log.due import NEXT_SWEEP, Due


class MemoryDueFeeds:
    """Implements `DueFeeds`; *feeds* are due at first.

    The fakes of stores call `mark`, in the place of the check by which `settle` finds that a number
    was taken.
    """

    def __init__(self, feeds: Iterable[str] = ()) -> None:
        self._times = dict.fromkeys(feeds, NEXT_SWEEP)
        self._marks = 0
        self._versions: dict[str, int] = {}
        self._lock = Lock()

    def mark(self, feed: str) -> None:
        with self._lock:
            self._marks += 1
            self._times[feed], self._versions[feed] = NEXT_SWEEP, self._marks

    def due(self, now_ms: int) -> Sequence[Due]:
        with self._lock:
            return [
                Due(feed, self._versions.get(feed, 0), at_ms)
                for feed, at_ms in sorted(self._times.items())
                if at_ms <= now_ms
            ]

    def settle(self, due: Due, next_ms: int | None, *, head: int) -> bool:
        with self._lock:
            if self._versions.get(due.feed, 0) != due.version:
                return False
            self._versions.pop(due.feed, None)
            self._times.pop(due.feed, None)
            if next_ms is not None:
                self._times[due.feed] = next_ms
            return True


def mark_nothing(feed: str) -> None:
    """Do nothing: the default of fakes that mark feeds."""
