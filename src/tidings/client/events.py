"""Events as a consumer handles them, the same for every transport."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tidings.client.errors import Lost
from tidings.core.errors import InvalidCursor
from tidings.core.model import cursors

RESET = "reset"
LIVE = "live"


@dataclass(frozen=True, slots=True)
class Event:
    """
    An event with *name* insert, update, delete, leave, reset or live.

    *data* is the operation, {} without one. *id* is the cursor to resume from once the event is
    handled.
    """

    id: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_operation(self) -> bool:
        return self.name not in (RESET, LIVE)


@dataclass(frozen=True, slots=True)
class Moved:
    """A message that everything up to *cursor* has been sent. Resume from there."""

    cursor: str


def from_text(event_id: str, name: str, text: str) -> Event:
    """
    Return an event, given its data as JSON text.

    Raises:
        Lost: the data is not a JSON object; the connection cannot be trusted any further.
    """
    try:
        data = json.loads(text) if text else {}
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Lost(f"the data of event {event_id or '(without id)'} is not a JSON object")
    return Event(event_id, name, data)


class Handled:
    """
    The last handled operation, to detect repetitions (PROTOCOL 6.4). *cursor* is the start.

    Rows of a copy have no place in the log, and their pages may arrive in any order. The log that
    follows them may even be a different one (5.6). So rows, `reset` and `live` clear it.
    """

    def __init__(self, cursor: str = "") -> None:
        self._last = _place(cursor)

    def repeats(self, event: Event) -> bool:
        """Return True if *event* is an operation at or before the last handled one."""
        place = _place_of(event)
        return place is not None and self._last is not None and place <= self._last

    def note(self, event: Event) -> None:
        """Record that *event* is handled."""
        self._last = _place_of(event)

    def note_moved(self, cursor: str) -> None:
        """Record that everything up to *cursor* was sent."""
        self._last = _place(cursor)


def _place_of(event: Event) -> tuple[int, int] | None:
    """Return page and slot of an operation of the log, None for any other event."""
    return _place(event.id) if event.is_operation else None


def _place(text: str) -> tuple[int, int] | None:
    cursor = parsed(text)
    return (cursor.page, cursor.slot) if isinstance(cursor, cursors.Place) else None


def parsed(text: str) -> cursors.Cursor | None:
    """Return the cursor in *text*, None if it is not a cursor."""
    try:
        return cursors.parse(text)
    except InvalidCursor:
        return None
