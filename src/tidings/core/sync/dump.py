"""
Dumps: what a line of one means. A dump is newline JSON, an object a line as its owner keeps it.

A line `{"tidings":"end","lines":N}` says that the dump is whole: the N of all such lines add up
to the lines that describe an object. Blank lines mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.errors import InvalidOperation
from tidings.core.model import timestamps
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import key_of
from tidings.core.sync.diff import dump_line

_END = "end"


@dataclass(frozen=True, slots=True)
class Described:
    """An object of the dump: its operation as *line*, without a decision what is to be done."""

    key: str
    moment: str
    line: str


@dataclass(frozen=True, slots=True)
class End:
    """How many lines whoever wrote the dump says it has."""

    lines: int


def read_line(text: bytes) -> Described | End | None:
    """
    What one line says; None for a blank one.

    Raises:
        InvalidOperation: not JSON, or a field is missing or breaks its rule.
        TooLarge: a field or the line is longer than `limits` allows.
    """
    if not text.strip():
        return None
    raw = decode_json(text, "")
    if not isinstance(raw, dict):
        raise InvalidOperation("must be a JSON object", value=raw)
    if "tidings" in raw and "type" not in raw:
        return _end(raw)
    line = dump_line(raw)
    return Described(key_of(line), moment_of(line), line)


def moment_of(line: str) -> str:
    """The timestamp of a line of the log, cut so that text compares as time does: without Z."""
    start = _MOMENT_AT
    return line[start : line.index('"', start) - 1]


def moment(timestamp: str) -> str:
    """*timestamp*, in the normal form, cut likewise."""
    return timestamp.removesuffix("Z")


def timestamp_of(moment: str) -> str:
    """The timestamp again."""
    return timestamps.normal_form(f"{moment}Z")


_MOMENT_AT = len('{"event":"insert","timestamp":"')


def _end(raw: dict[str, object]) -> End:
    lines = raw.get("lines")
    if raw["tidings"] != _END:
        raise InvalidOperation(f'must be "{_END}"', field="tidings", value=raw["tidings"])
    if not isinstance(lines, int) or isinstance(lines, bool) or lines < 0:
        raise InvalidOperation("must be a whole number", field="lines", value=lines)
    return End(lines)
