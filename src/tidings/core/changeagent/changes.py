"""
Changes: the entries of the log as changeagent's clients know them, and what they post.

A change has no object: it is an operation of its own that the state leaves out, marked by a
key which no producer of operations can write. Every entry, whoever posted it, has an integer
id: its place, packed so that it ascends in log order and fits any client's numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidChange, InvalidOperation, TooLarge
from tidings.core.model import timestamps
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.json_body import check_size, decode_spelled, members
from tidings.core.model.operations import MARKED, check_text, encoded, is_change, without_breaks

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPE = "change"
_SLOTS = 1 << limits.CHANGE_SLOT_BITS
_LAST_SLOT = _SLOTS - 1
ID_MAX = 2**64 - 1  # what changeagent takes for an id
_OURS = ("data", "_id", "_ts")  # a body with one of them is a change, any other is its data
_DATA = ',"data":'  # before the data of a line; a quote inside a JSON string is escaped
_LINE_ENDS = str.maketrans("\r\n", "  ")  # white space of JSON, which a line of the log cannot hold
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """*data* is the text of a JSON value as the client spelled it, on one line."""

    data: str
    tags: tuple[str, ...] = ()


def number_of(page: int, slot: int) -> int:
    """The id of the entry at (page, slot)."""
    return page << limits.CHANGE_SLOT_BITS | slot


def end_of(page: int) -> int:
    """The id behind every entry of *page*, and before those of the next one; 0 is the start."""
    return number_of(page, _LAST_SLOT) if page > 0 else 0


def place_of(number: int) -> tuple[int, int]:
    """Page and slot of an id."""
    return number >> limits.CHANGE_SLOT_BITS, number & _LAST_SLOT


def behind(place: Place) -> int:
    """A place of the feed as the id to ask `since` with."""
    return end_of(place.page) if place.slot == PAGE_END else number_of(place.page, place.slot)


def change_from(body: bytes) -> Change:
    """
    Parse what a client posts: `{"data":...,"tags":[...]}`, or any other JSON value as the data.

    Names match in any case and the last one of a name counts, as in Go's encoding/json.

    Raises:
        InvalidChange: not JSON, or tags that break their rule.
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
    """
    The log's line for *change*; *name* is its unique id as an operation.

    Raises:
        TooLarge: longer than an operation may be.
    """
    time, tags = timestamps.from_ms(now_ms), encoded(list(change.tags))
    line = (
        f'{{"event":"insert","timestamp":"{time}","parents":{tags},"type":"{TYPE}",'
        f'"id":{encoded(name)},"data":{change.data}{MARKED}'
    )
    size = len(line.encode())
    if size > limits.OPERATION_BYTES_MAX:
        rule = f"a change holds at most {limits.OPERATION_BYTES_MAX} bytes, this one {size}"
        raise TooLarge(rule, field="data")
    return line


def tags_of(line: str) -> list[str]:
    """
    What a reader can filter *line* by, in order and once each.

    Of a change its tags; of an operation its type, its parents and its own tags.
    """
    fields: dict[str, Any] = json.loads(line)
    if is_change(line):
        return list(fields["parents"])
    return list(dict.fromkeys((fields["type"], *fields["parents"], *fields.get("tags", ()))))


def entry_of(line: str, *, number: int, at_ms: int) -> str:
    """*line* as a reader of changes sees it, in JSON; *at_ms* is the commit time of its page."""
    tags = tags_of(line)
    shown = f'"tags":{encoded(tags)},' if tags else ""
    return f'{{"_id":{number},"_ts":{at_ms * _NS_PER_MS},{shown}"data":{_shown(line)}}}'


def may_hold(text: str, tags: Iterable[str]) -> bool:
    """False only where no line in *text* has one of *tags*: what is not encoded is not there."""
    return any(encoded(tag) in text for tag in tags)


def _shown(line: str) -> str:
    if not is_change(line):
        return line
    return line[line.index(_DATA) + len(_DATA) : -len(MARKED)]


def _on_one_line(text: str) -> str:
    return without_breaks(text.translate(_LINE_ENDS))


def _check_storable(value: object) -> None:
    """
    Raises:
        InvalidChange: a reader could not represent *value*.
    """
    try:
        encoded(value).encode()
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
