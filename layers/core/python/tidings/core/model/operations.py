"""
Operations: one change of one object, as producers send it and as the log keeps it.

An operation is validated once, at the door, and becomes one line of JSON. The line starts
with the event, so that a reader finds event and data by slicing instead of parsing:

    {"event":"update","timestamp":"...","parents":[...],"type":"video","id":"x32"}
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model import timestamps

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = ("insert", "update", "delete")
_EVENT_AT = len('{"event":"')
_DATA_AT = len('{"event":"insert",')  # each event name has six letters
# Made once: `json.dumps` would make one for each operation.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile("[\u0085\u2028\u2029]")  # some readers of event streams end a line there


@dataclass(frozen=True, slots=True)
class Operation:
    """What a filter needs to know of a line; *changed* is set where listeners are served."""

    event: str
    type: str
    id: str
    parents: tuple[str, ...]
    changed: tuple[str, ...] = ()


def event_of(line: str) -> str:
    return line[_EVENT_AT : _EVENT_AT + 6]


def data_of(line: str) -> str:
    """The operation without its event, as JSON: what SSE calls data."""
    return "{" + line[_DATA_AT:]


def as_event(line: str, event: str) -> str:
    """*line* with another event."""
    return f'{{"event":"{event}",{line[_DATA_AT:]}'


def parse_line(line: str) -> Operation:
    """Read back a line of the log."""
    found = json.loads(line)
    return Operation(found["event"], found["type"], found["id"], tuple(found["parents"]))


def line_from(raw: object, *, now_ms: int, where: str = "") -> str:
    """
    The log's line for *raw*, one decoded JSON value a producer sent.

    *where* names the operation in error messages: `ops[3].`. Unknown keys are ignored.

    Raises:
        InvalidOperation: a field is missing or breaks its rule.
        TooLarge: a field or the line is longer than `limits` allows.
    """
    if not isinstance(raw, dict):
        raise InvalidOperation("must be a JSON object", field=where.rstrip(".: "), value=raw)
    fields = _known(raw)
    line = _encode(
        {
            "event": _event(fields, where),
            "timestamp": _timestamp(fields, now_ms, where),
            "parents": _texts(fields, "parents", limits.PARENTS_MAX, where),
            "type": _type(fields, where),
            "id": _name(fields, "id", limits.ID_BYTES_MAX, where),
            **_extras(fields, where),
        },
        where,
    )
    size = len(line.encode())
    if size > limits.OPERATION_BYTES_MAX:
        rule = f"one operation holds at most {limits.OPERATION_BYTES_MAX} bytes, this one {size}"
        raise TooLarge(rule, field=where.rstrip(".: "), value=fields.get("id"))
    return line


_FIELDS = frozenset({"event", "timestamp", "parents", "type", "id", "tags", "changed", "data"})


def _known(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Keys match whatever their case, the last one wins (as oplog's producers rely on)."""
    return {key.lower(): value for key, value in raw.items() if key.lower() in _FIELDS}


def lower_case(text: str) -> str:
    """
    *text* in lower case, letter by letter, as oplog's producers and filters know it.

    `str.lower` looks at the neighbours of a sigma and makes two letters of a dotted capital I.
    """
    if text.isascii():
        return text.lower()
    return "".join("i" if letter == "\u0130" else letter.lower() for letter in text)


def _event(fields: Mapping[str, Any], where: str) -> str:
    event = fields.get("event")
    if not isinstance(event, str) or event.lower() not in EVENTS:
        rule = f"must be one of {', '.join(EVENTS)}"
        raise InvalidOperation(rule, field=f"{where}event", value=event)
    return event.lower()


def _timestamp(fields: Mapping[str, Any], now_ms: int, where: str) -> str:
    given = fields.get("timestamp")
    if given is None:
        return timestamps.from_ms(now_ms)
    if not isinstance(given, str):
        rule = "must be an RFC 3339 date-time"
        raise InvalidOperation(rule, field=f"{where}timestamp", value=given)
    try:
        return timestamps.normal_form(given)
    except ValueError as error:
        rule = f"must be an RFC 3339 date-time ({error})"
        raise InvalidOperation(rule, field=f"{where}timestamp", value=given) from None


def _name(fields: Mapping[str, Any], field: str, bytes_max: int, where: str) -> str:
    if field not in fields:
        raise InvalidOperation("is required", field=f"{where}{field}")
    return check_text(fields[field], f"{where}{field}", bytes_max)


def _type(fields: Mapping[str, Any], where: str) -> str:
    """In lower case, and checked again, because lower case may take more bytes."""
    given = _name(fields, "type", limits.TYPE_BYTES_MAX, where)
    return check_text(lower_case(given), f"{where}type", limits.TYPE_BYTES_MAX)


def _texts(fields: Mapping[str, Any], field: str, count_max: int, where: str) -> list[str]:
    given = fields.get(field)
    if given is None:
        return []
    if not isinstance(given, list):
        rule = "must be an array of strings"
        raise InvalidOperation(rule, field=f"{where}{field}", value=given)
    if len(given) > count_max:
        rule = f"holds at most {count_max} entries, got {len(given)}"
        raise TooLarge(rule, field=f"{where}{field}")
    return [
        check_text(value, f"{where}{field}[{at}]", limits.PARENT_BYTES_MAX)
        for at, value in enumerate(given)
    ]


def _extras(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What an operation may carry beyond oplog's fields; absent ones leave no trace."""
    extras: dict[str, Any] = {}
    for field in ("tags", "changed"):
        if fields.get(field) is not None:
            extras[field] = _texts(fields, field, limits.TAGS_MAX, where)
    if fields.get("data") is not None:
        extras["data"] = fields["data"]
    return extras


def check_text(value: object, field: str, bytes_max: int) -> str:
    """
    A non-empty string that every store and transport can hold.

    Raises:
        InvalidOperation: not a string, empty, or with a NUL or lone surrogate in it.
        TooLarge: longer than *bytes_max* in UTF-8.
    """
    if not isinstance(value, str):
        raise InvalidOperation("must be a string", field=field, value=value)
    if not value:
        raise InvalidOperation("must not be empty", field=field, value=value)
    if "\0" in value:
        raise InvalidOperation("must not contain U+0000", field=field, value=value)
    if _SURROGATE.search(value):
        raise InvalidOperation("must not contain a lone surrogate", field=field, value=value)
    size = len(value.encode())
    if size > bytes_max:
        raise TooLarge(f"holds at most {bytes_max} bytes, got {size}", field=field, value=value)
    return value


def spelled(value: object) -> str:
    """
    *value* as the log's JSON: one spelling for each string, and no line end inside any.

    Raises:
        ValueError: a number beyond JSON.
    """
    text = _ENCODER.encode(value)
    return _BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _encode(fields: Mapping[str, Any], where: str) -> str:
    try:
        line = spelled(fields)
    except ValueError:
        rule = "must not hold a number beyond the range of a double"
        raise InvalidOperation(rule, field=f"{where}data") from None
    if _SURROGATE.search(line):  # names are checked, so it is in the data
        raise InvalidOperation("must not contain a lone surrogate", field=f"{where}data")
    return line
