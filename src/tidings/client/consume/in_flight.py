"""
What was handed out and is not acknowledged yet, and the cursor that is safe to save.

The cursor stands behind the last event below which everything is acknowledged, in whatever
order that happened. Everything here takes constant time, on average.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Group:
    """Events in a row with one id, as the rows of a copy have: passed together."""

    id: str
    unacked: int


class InFlight:
    """
    Groups in the order they were handed out; the first one holds the cursor back.

    A later group that is acknowledged waits, without its events, for those before it. *limit*
    bounds the groups and the events, and with them the memory.
    """

    def __init__(self, cursor: str, limit: int) -> None:
        self.cursor = cursor
        self._limit = limit
        self._groups: deque[Group] = deque()
        self._unacked = 0

    @property
    def is_full(self) -> bool:
        return max(self._unacked, len(self._groups)) >= self._limit

    @property
    def is_half_empty(self) -> bool:
        """Whether it is worth going on: to wake a reader for each event would cost the most."""
        return max(self._unacked, len(self._groups)) <= self._limit // 2

    def add(self, event_id: str) -> Group:
        """An event is handed out; its group is what to acknowledge. Without an id, the last's."""
        last = self._groups[-1] if self._groups else None
        if last is None or event_id not in ("", last.id):
            last = Group(event_id or self.cursor, 0)
            self._groups.append(last)
        last.unacked += 1
        self._unacked += 1
        return last

    def ack(self, group: Group) -> None:
        """One event of *group* is handled."""
        group.unacked -= 1
        self._unacked -= 1
        self._advance()

    def move(self, cursor: str) -> None:
        """Nothing else comes up to *cursor*: the cursor may move there behind the others."""
        if self._groups and self._groups[-1].unacked == 0:
            self._groups[-1].id = cursor
        else:
            self._groups.append(Group(cursor, 0))
        self._advance()

    def _advance(self) -> None:
        while self._groups and self._groups[0].unacked == 0:
            self.cursor = self._groups.popleft().id
