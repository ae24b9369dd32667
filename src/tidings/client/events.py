"""Events as a consumer handles them, whatever transport brought them."""

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
    *name* is insert, update, delete, reset or live; *data* the operation, {} without one.

    *id* is the cursor to resume from once the event is handled.
    """

    id: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_operation(self) -> bool:
        return self.name not in (RESET, LIVE)


@dataclass(frozen=True, slots=True)
class Moved:
    """Everything up to *cursor* has been sent: resume from there."""

    cursor: str


def from_text(event_id: str, name: str, text: str) -> Event:
    """
    An event whose data is still JSON text.

    Raises:
        Lost: the data is no JSON object; the connection cannot be trusted any further.
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
    What was handled last, to know a repeated operation (PROTOCOL 6.4); *cursor* to begin with.

    Rows of a copy have no place in the log and may follow in any order of pages; the log
    that follows them may even be another one (5.6). So they, `reset` and `live` start anew.
    """

    def __init__(self, cursor: str = "") -> None:
        self._last = _place(cursor)

    def repeats(self, event: Event) -> bool:
        """Whether *event* is an operation at or below the last one handled."""
        place = _place_of(event)
        return place is not None and self._last is not None and place <= self._last

    def note(self, event: Event) -> None:
        """*event* is handled."""
        self._last = _place_of(event)

    def note_moved(self, cursor: str) -> None:
        """Everything up to *cursor* was sent."""
        self._last = _place(cursor)


def _place_of(event: Event) -> tuple[int, int] | None:
    """Page and slot of an operation of the log, None for anything else."""
    return _place(event.id) if event.is_operation else None


def _place(text: str) -> tuple[int, int] | None:
    cursor = parsed(text)
    return (cursor.page, cursor.slot) if isinstance(cursor, cursors.Place) else None


def parsed(text: str) -> cursors.Cursor | None:
    """None where it is no cursor."""
    try:
        return cursors.parse(text)
    except InvalidCursor:
        return None
