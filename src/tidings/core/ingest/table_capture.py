"""Table captures, which convert each write to a table of another application into operations.

A write is reported with the attributes of the item before the write and after it, and with the
attributes of the item's key. The owner of the table describes its objects with templates for type,
id and parents, such as `user/{{owner}}`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSetting, Rejected
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.model.feeds import DEFAULT_FEED, check_name
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import line_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Count
    from tidings.core.ingest.outbox import Outbox
    from tidings.core.log.append import Appender

# The attributes of an item, by name. A string or number is stored as a string. A list or set is
# stored as a tuple of its strings and numbers; its other values are left out. Attributes of other
# types are left out.
Attributes = dict[str, str | tuple[str, ...]]

_PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}\}")
_TEXTS, _LISTS = ("feed", "type", "id", "timestamp"), ("parents",)
_REQUIRED = ("type", "id")


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one item at the time *at_ms*. *event* is `insert`, `update` or `delete`.

    *before* is empty for an insert, and *after* for a delete. Both may be empty if the table's
    stream does not contain them. *id* is the same each time that this write is reported.
    """

    id: str
    event: str
    keys: Attributes
    before: Attributes
    after: Attributes
    at_ms: int


@dataclass(frozen=True, slots=True)
class Capture:
    """The description of a table's objects. *type*, *id* and each of *parents* are templates.

    *timestamp* is the name of the attribute that has the timestamp, or "". An id is built from the
    attributes of the key only, so that an item is always the same object.
    """

    feed: str
    type: str
    id: str
    parents: tuple[str, ...] = ()
    timestamp: str = ""

    def lines_of(self, write: Write) -> list[str]:
        """Return the line of the log for *write*, or the lines of a delete and an insert.

        There are two lines if the write changed the object's type.

        Raises:
            InvalidOperation, TooLarge: the write cannot become an operation; a retry does not help.
        """
        now = write.before if write.event == "delete" else write.after
        line = self._line(write, write.event, now)
        types = _texts(self.type, write.keys | write.before), _texts(self.type, write.keys | now)
        if write.event != "update" or not write.before or not types[0] or types[0] == types[1]:
            return [line]
        return [self._line(write, "delete", write.before), self._line(write, "insert", now)]

    def _line(self, write: Write, event: str, attributes: Attributes) -> str:
        item = write.keys | attributes
        made = _one(self.id, write.keys, "id")
        if not _can_be_split(self.id, write.keys):
            rule = "the value of an attribute contains the text that follows it in the template"
            raise InvalidOperation(rule, field="id", value=made)
        fields: dict[str, Any] = {
            "event": event,
            "type": _one(self.type, item, "type"),
            "id": made,
            "parents": list(dict.fromkeys(p for each in self.parents for p in _texts(each, item))),
        }
        if event != "delete":  # a deleted item still has the timestamp of its previous change
            fields["timestamp"] = item.get(self.timestamp)
        return line_from(fields, now_ms=write.at_ms)


def parse(text: str) -> Capture:
    """Parse a capture from a JSON object.

    Raises:
        InvalidSetting: *text* is not a valid capture.
    """
    fields = _object(text)
    for name in _REQUIRED:
        if not fields.get(name):
            raise InvalidSetting("is required", field=name)
    placeholders = _PLACEHOLDER.findall(fields["id"])
    if not placeholders or re.search(r"\}\}\{\{", fields["id"]):
        rule = "needs the attributes of the key, as {{name}}, and text between any two of them"
        raise InvalidSetting(rule, field="id", value=fields["id"])
    return Capture(
        check_name(fields.get("feed", DEFAULT_FEED)),
        fields["type"],
        fields["id"],
        tuple(fields.get("parents", ())),
        fields.get("timestamp", ""),
    )


def _object(text: str) -> dict[str, Any]:
    """Parse *text* as a JSON object; check the names of its fields and the types of the values."""
    try:
        fields = decode_json(text.encode(), "capture")
    except InvalidOperation as error:
        raise InvalidSetting(error.rule, field="capture") from None
    if not isinstance(fields, dict):
        raise InvalidSetting("must be a JSON object", field="capture", value=fields)
    for name, value in fields.items():
        if name not in _TEXTS + _LISTS:
            known = ", ".join(_TEXTS + _LISTS)
            raise InvalidSetting(f"is not a known field; the fields are {known}", field=name)
        each = value if name in _LISTS else [value]
        if not isinstance(each, list) or not all(isinstance(one, str) for one in each):
            rule = "must be an array of strings" if name in _LISTS else "must be a string"
            raise InvalidSetting(rule, field=name, value=value)
    return fields


def _texts(template: str, attributes: Attributes) -> list[str]:
    """Return *template* filled with each combination of its attributes' values.

    Return [] if an attribute is missing or has no values.
    """
    names = _PLACEHOLDER.findall(template)
    values = [attributes.get(name, ()) for name in names]
    each = [(value,) if isinstance(value, str) else value for value in values]
    return [_fill(template, combination) for combination in product(*each)]


def _fill(template: str, values: tuple[str, ...]) -> str:
    """Replace all placeholders in one pass, so that a placeholder in a value is not replaced."""
    left = iter(values)
    return _PLACEHOLDER.sub(lambda _: next(left), template)


def _one(template: str, attributes: Attributes, field: str) -> str:
    texts = _texts(template, attributes)
    if len(texts) != 1:
        rule = f"needs each attribute of {template}, with one string or number as its value"
        raise InvalidOperation(rule, field=field)
    return texts[0]


def _can_be_split(template: str, attributes: Attributes) -> bool:
    """Return True if the filled *template* can be split into the values of its attributes again.

    The filled template can be split if no value contains the text that follows its placeholder.
    Otherwise two items could become one object.
    """
    parts = _PLACEHOLDER.split(template)
    pairs = zip(parts[1:-2:2], parts[2:-1:2], strict=True)
    return all(
        (text := str(attributes[name]) + between).find(between) == len(text) - len(between)
        for name, between in pairs
    )


WRITE = "write"  # the kind of a message for a write that cannot become an operation
# The fingerprint of all claims. It need not identify the content, because the key contains the id
# of the first write, which identifies the request.
_FINGERPRINT = "table"


@dataclass(frozen=True, slots=True)
class _Captured:
    write: Write
    lines: Sequence[str]

    @property
    def size(self) -> int:
        return sum(len(line.encode()) + 1 for line in self.lines)


@dataclass(frozen=True, slots=True)
class Capturer:
    """A worker that appends the writes of a table.

    *outbox* stores the writes that cannot become operations, for an operator to inspect.
    """

    capture: Capture
    appender: Appender
    outbox: Outbox
    count: Count

    def run(self, writes: Sequence[Write]) -> None:
        """Append the operations for *writes* in order, and each of them only once.

        Raises:
            Unavailable: a store did not answer; the caller may pass the same writes again.
        """
        left = [captured for write in writes if (captured := self._captured(write)).lines]
        while left:
            left = left[self._append(left) :]

    def _append(self, left: Sequence[_Captured]) -> int:
        """Append the first writes of *left* as a page; return how many of *left* are in the page.

        If an earlier run has appended the first write already, count the writes of *left* that are
        in the page of that run. The result is at least 1.
        """
        lines = [line for captured in left[: _fitting(left)] for line in captured.lines]
        key = f"table/{left[0].write.id}"
        page = self.appender.append_once(self.capture.feed, lines, key, _FINGERPRINT)
        ends = accumulate(len(captured.lines) for captured in left)
        held = max(1, sum(end <= len(page.lines) for end in ends))
        self.count("WritesCaptured", held)
        return held

    def _captured(self, write: Write) -> _Captured:
        try:
            return _Captured(write, self.capture.lines_of(write))
        except Rejected as error:
            body = json.dumps({"event": write.event, "keys": dict(write.keys)})
            message = OutboxMessage(f"{write.at_ms:013d}-{write.id}", WRITE, body)
            self.outbox.put_aside(self.capture.feed, message, str(error))
            self.count("WritesRefused", 1)
            return _Captured(write, ())


def _fitting(left: Sequence[_Captured]) -> int:
    """Return how many of the first writes of *left* fit into one page, at least one."""
    lines = accumulate(len(captured.lines) for captured in left)
    sizes = accumulate(captured.size for captured in left)
    fits = [
        count <= limits.REQUEST_OPERATIONS_MAX and size <= limits.CAPTURE_BYTES
        for count, size in zip(lines, sizes, strict=True)
    ]
    return max(1, sum(fits))
