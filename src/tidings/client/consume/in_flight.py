"""
Unacknowledged events, and the cursor that is safe to save.

All events up to the cursor are acknowledged, in whatever order that happened. Every method takes
amortized constant time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Group:
    """
    Consecutive events with the same id, as rows of a copy have. The cursor passes them together.
    """

    id: str
    unacked: int


class InFlight:
    """
    Groups in the order of delivery; the first one holds the cursor back.

    A later group that is acknowledged is kept, without its events, until the earlier ones are.
    *limit* bounds the number of groups and of events, and with it the memory.
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
        """Return True if the reader should resume. Waking it for each event would be expensive."""
        return max(self._unacked, len(self._groups)) <= self._limit // 2

    def add(self, event_id: str) -> Group:
        """
        Add an event and return its group, to be acknowledged. Without an id, use the last group.
        """
        last = self._groups[-1] if self._groups else None
        if last is None or event_id not in ("", last.id):
            last = Group(event_id or self.cursor, 0)
            self._groups.append(last)
        last.unacked += 1
        self._unacked += 1
        return last

    def ack(self, group: Group) -> None:
        """Record that one event of *group* is handled."""
        group.unacked -= 1
        self._unacked -= 1
        self._advance()

    def move(self, cursor: str) -> None:
        """
        Let the cursor move to *cursor* after the earlier groups: no other event up to it follows.
        """
        if self._groups and self._groups[-1].unacked == 0:
            self._groups[-1].id = cursor
        else:
            self._groups.append(Group(cursor, 0))
        self._advance()

    def _advance(self) -> None:
        while self._groups and self._groups[0].unacked == 0:
            self.cursor = self._groups.popleft().id
