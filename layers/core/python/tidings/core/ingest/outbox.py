"""
The outbox: what owners of other tables leave in one transaction with their own writes.

A message stays until its page is in the log, and is appended under its id, so that it is appended
once however often it is tried. One that never can be is put aside with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

OPERATIONS, ITEMS = "operations", "items"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """*body* is NDJSON of what *kind* says. Messages are appended in the order of their ids."""

    id: str
    kind: str
    body: str
