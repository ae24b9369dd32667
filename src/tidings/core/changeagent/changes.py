"""Convert posted changes to lines of the log, and lines to the JSON that changeagent's clients get.

A change does not belong to an object. It is stored as an operation of a special type, which the
state ignores. A JSON field that no producer of operations can write marks the operation. An entry
is a line of the log: a change, or an operation of any producer. Every entry has an integer id,
which packs the page and slot of the entry into one number, so that ids ascend in log order and fit
the numbers of any client.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidChange, InvalidOperation, TooLarge
from tidings.core.model import timestamps
from tidings.core.model.json_body import check_size, decode_spelled, members
from tidings.core.model.operations import (
    MARKED,
    check_text,
    is_change,
    to_canonical_json,
    without_breaks,
    without_details,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPE = "change"
_SLOTS = 1 << limits.CHANGE_SLOT_BITS
_LAST_SLOT = _SLOTS - 1
ID_MAX = 2**64 - 1  # the largest id in changeagent
# A body with one of these fields is a change. Any other body is the data of a change.
_OURS = ("data", "_id", "_ts")
# The text before the data of a line. It cannot occur in a JSON string, where quotes are escaped.
_DATA = ',"data":'
# Line ends are valid between the tokens of JSON, but not in a line of the log.
_LINE_ENDS = str.maketrans("\r\n", "  ")
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """A change. *data* is the text of a JSON value as the client wrote it, on one line."""

    data: str
    tags: tuple[str, ...] = ()


def number_of(page: int, slot: int) -> int:
    """Return the id of the entry at (page, slot)."""
    return page << limits.CHANGE_SLOT_BITS | slot


def end_of(page: int) -> int:
    """Return the id after all entries of *page*, before the next page; 0 before the first page."""
    return number_of(page, _LAST_SLOT) if page > 0 else 0


def place_of(number: int) -> tuple[int, int]:
    """Return the page and the slot of an id."""
    return number >> limits.CHANGE_SLOT_BITS, number & _LAST_SLOT


def change_from(body: bytes) -> Change:
    """Parse the body of a client: `{"data":...,"tags":[...]}`, or any other JSON value as the data.

    The case of names is ignored, and if a name is repeated, the last one counts, as in Go's
    encoding/json.

    Raises:
        InvalidChange: the body is not JSON, or its tags break their rule.
        TooLarge: see `limits`.
    """
    check_size(body)
    try:
        document, text = decode_spelled(body, "body")
    except InvalidOperation as error:
        raise InvalidChange("Invalid JSON", value=error.rule) from None
    _check_storable(document)
    if isinstance(document, dict):
        fields = {name.lower(): spelled for name, spelled in members(text)}
        if any(name in fields for name in _OURS):
            tags = json.loads(fields.get("tags", "null"))
            return Change(_on_one_line(fields.get("data", "null")), _tags(tags))
    return Change(_on_one_line(text))


def line_of(change: Change, *, name: str, now_ms: int) -> str:
    """Return the line of the log for *change*; *name* is the unique id of the operation.

    Raises:
        TooLarge: the line is longer than an operation may be.
    """
    time, tags = timestamps.from_ms(now_ms), to_canonical_json(list(change.tags))
    line = (
        f'{{"event":"insert","timestamp":"{time}","parents":{tags},"type":"{TYPE}",'
        f'"id":{to_canonical_json(name)},"data":{change.data}{MARKED}'
    )
    size = len(line.encode())
    if size > limits.OPERATION_BYTES_MAX:
        rule = f"a change holds at most {limits.OPERATION_BYTES_MAX} bytes, got {size}"
        raise TooLarge(rule, field="data")
    return line


def tags_of(line: str) -> list[str]:
    """Return the values by which a reader can filter *line*, in order.

    For a change, these are its tags. For an operation, these are its type, its parents and its
    tags, without duplicates.
    """
    fields: dict[str, Any] = json.loads(line)
    if is_change(line):
        return list(fields["parents"])
    return list(dict.fromkeys((fields["type"], *fields["parents"], *fields.get("tags", ()))))


def entry_of(line: str, *, number: int, at_ms: int) -> str:
    """Return *line* in JSON for readers of changes. *at_ms* is its page's commit time."""
    tags = tags_of(line)
    shown = f'"tags":{to_canonical_json(tags)},' if tags else ""
    return f'{{"_id":{number},"_ts":{at_ms * _NS_PER_MS},{shown}"data":{_format(line)}}}'


def may_hold(text: str, tags: Iterable[str]) -> bool:
    """Return True if a line in *text* may have one of *tags*: *text* has the JSON of one."""
    return any(to_canonical_json(tag) in text for tag in tags)


def _format(line: str) -> str:
    if not is_change(line):
        return without_details(line)
    return line[line.index(_DATA) + len(_DATA) : -len(MARKED)]


def _on_one_line(text: str) -> str:
    return without_breaks(text.translate(_LINE_ENDS))


def _check_storable(value: object) -> None:
    """Check that a reader can represent *value*."""
    try:
        to_canonical_json(value).encode()
    except UnicodeEncodeError:
        raise InvalidChange("must not contain a lone surrogate", field="data") from None
    except ValueError:
        rule = "must not hold a number beyond the range of a double"
        raise InvalidChange(rule, field="data") from None


def _tags(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise InvalidChange("must be an array of strings", field="tags", value=given)
    if len(given) > limits.PARENTS_MAX:
        rule = f"holds at most {limits.PARENTS_MAX} tags, got {len(given)}"
        raise TooLarge(rule, field="tags")
    try:
        return tuple(
            check_text(tag, f"tags[{at}]", limits.PARENT_BYTES_MAX) for at, tag in enumerate(given)
        )
    except InvalidOperation as error:
        raise InvalidChange(error.rule, field=error.field, value=error.value) from None
