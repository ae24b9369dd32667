"""
Dumps: the meaning of their lines. A dump is newline-delimited JSON, one object per line.

A line `{"tidings":"end","lines":N}` marks a complete dump: the sum of N over all such lines is the
number of lines that describe an object. Blank lines are ignored.
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
    """An object of the dump, with its operation as *line*; the event is not decided yet."""

    key: str
    moment: str
    line: str


@dataclass(frozen=True, slots=True)
class End:
    """An end line: the number of *lines* that the dump should have, according to its writer."""

    lines: int


def read_line(text: bytes) -> Described | End | None:
    """
    Parse one line. Return None for a blank line.

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
    """Return the timestamp of a line of the log without its Z, so that text order is time order."""
    start = _MOMENT_AT
    return line[start : line.index('"', start) - 1]


def moment(timestamp: str) -> str:
    """Return *timestamp*, in the normal form, without its Z."""
    return timestamp.removesuffix("Z")


def timestamp_of(moment: str) -> str:
    """Return the timestamp of *moment*, in the normal form."""
    return timestamps.normal_form(f"{moment}Z")


_MOMENT_AT = len('{"event":"insert","timestamp":"')


def _end(raw: dict[str, object]) -> End:
    lines = raw.get("lines")
    if raw["tidings"] != _END:
        raise InvalidOperation(f'must be "{_END}"', field="tidings", value=raw["tidings"])
    if not isinstance(lines, int) or isinstance(lines, bool) or lines < 0:
        raise InvalidOperation("must be a whole number", field="lines", value=lines)
    return End(lines)
