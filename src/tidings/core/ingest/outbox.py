"""
The outbox: what owners of other tables leave in one transaction with their own writes.

A message stays until its page is in the log, and is appended under its id, so that it is appended
once however often it is tried. One that never can be is put aside with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

OPERATIONS, ITEMS = "operations", "items"
_MS_DIGITS = 13  # of milliseconds since 1970, until the year 2286


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """*body* is NDJSON of what *kind* says. Messages are appended in the order of their ids."""

    id: str
    kind: str
    body: str

    @property
    def at_ms(self) -> int:
        """When it was left, by its id; 0 where the id is somebody's who does not say it so."""
        digits = self.id.partition("-")[0]
        return int(digits) if digits.isdecimal() and len(digits) == _MS_DIGITS else 0
