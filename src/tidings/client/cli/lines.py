"""The lines that `tidings tail` prints: one for each event, for a terminal, a pipe or a program."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from tidings.client.cli.render import machine, printable
from tidings.client.events import Event
from tidings.core.model.operations import to_canonical_json

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}
_NAME_CHARS = len("insert")
_OBJECT_CELLS = 32  # objects with longer names are not aligned
_FIELD = re.compile(r"\{([\w.-]+)\}")
_ESCAPES = {r"\t": "\t", r"\n": "\n"}

Line = Callable[[Event], str]


def line_of(as_json: bool, template: str | None, fields: Sequence[str]) -> Line:
    """Return the function that returns the line for an event, as the options of a command ask."""
    if as_json:
        return machine
    if fields:
        return lambda event: "\t".join(_field(event, name) for name in fields)
    if template is not None:
        for written, meant in _ESCAPES.items():
            template = template.replace(written, meant)
        return lambda event: _FIELD.sub(lambda found: _field(event, found[1]), template)
    return Columns() if sys.stdout.isatty() else plain


def plain(event: Event) -> str:
    """Return `2026-11-20T17:19:10.94Z insert video/x32 {"title":"Sea"}`, for a pipe."""
    names = ("time", "event", "object", "data")
    return " ".join(text for name in names if (text := _field(event, name)))


class Columns:
    """Aligned and coloured lines, which are cut at the width of the terminal."""

    def __init__(self) -> None:
        self._object_cells = 0

    def __call__(self, event: Event) -> str:
        from rich.cells import cell_len, set_cell_size

        moment, name = _moment(_field(event, "time")), _field(event, "event").ljust(_NAME_CHARS)
        shown, data = _field(event, "object"), _field(event, "data")
        cells = cell_len(shown)
        self._object_cells = max(self._object_cells, min(cells, _OBJECT_CELLS))
        text = f"{shown}{' ' * (self._object_cells - cells)}  {data}".rstrip()
        room = shutil.get_terminal_size().columns - len(moment) - len(name) - 4
        if cell_len(text) > room:
            text = f"{set_cell_size(text, max(room - 1, 0)).rstrip()}…"
        coloured = click.style(name, fg=_COLOURS.get(event.name, "cyan"))
        data = text[len(shown) :]
        return f"{click.style(moment, dim=True)}  {coloured}  {text[: len(shown)]}{_faint(data)}"


def _faint(text: str) -> str:
    return click.style(text, dim=True) if text else ""


def _moment(timestamp: str) -> str:
    """Return *timestamp* to the second, with a fixed width: `2026-11-20 17:19:10Z`."""
    if len(timestamp) < len("2026-11-20T17:19:10Z"):
        return timestamp
    return f"{timestamp[:10]} {timestamp[11:19]}Z"


def _field(event: Event, name: str) -> str:
    """Return the field *name* of the event or its operation as text; "" if it is missing.

    Dots separate the names in nested objects.
    """
    value: Any
    match name:
        case "time":
            value = event.data.get("timestamp")
        case "event":
            value = event.name
        case "cursor":
            value = event.id
        case "object":
            value = f"{event.data.get('type', '?')}/{event.data.get('id', '?')}"
        case _:
            value = event.data
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    if name == "parents" and isinstance(value, list):
        return printable(",".join(map(str, value)))
    is_text = isinstance(value, str) and name != "data"
    return printable(value if is_text else to_canonical_json(value))
