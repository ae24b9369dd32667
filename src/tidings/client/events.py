"""Events as a consumer handles them, the same for every transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidings.client.errors import Lost
from tidings.core.model import cursors
from tidings.core.model.operations import decode

RESET = "reset"
LIVE = "live"


@dataclass(frozen=True, slots=True)
class Event:
    """An event with *name* insert, update, delete, leave, erase, reset or live.

    *data* is the operation, or {} for `reset` and `live`. *id* is the cursor to resume from once
    the event is handled.
    """

    id: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_operation(self) -> bool:
        return self.name not in (RESET, LIVE)


@dataclass(frozen=True, slots=True)
class Moved:
    """A message that all events up to *cursor* were sent; a client can resume from there."""

    cursor: str


def from_text(event_id: str, name: str, text: str) -> Event:
    """Return an event, given its data as JSON text.

    Raises:
        Lost: the data is not a JSON object; the connection cannot be trusted any further.
    """
    try:
        data = decode(text) if text else {}
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Lost(f"the data of event {event_id or '(without id)'} is not a JSON object")
    return Event(event_id, name, data)


def is_copied(event_id: str) -> bool:
    """Return True if *event_id* is the id of a row of a copy (PROTOCOL 5.2)."""
    return isinstance(cursors.parse_cursor(event_id), cursors.Replication)
