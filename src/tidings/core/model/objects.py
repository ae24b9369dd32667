"""Objects: what an operation is about, and which entries of the log have none."""

from __future__ import annotations

import re

from tidings.core.model.operations import Operation, parse_line

# A line of `line_from` whose names hold nothing that JSON or a key escapes.
_ORDINARY = re.compile(
    r'\{"event":"\w{6}","timestamp":"[^"\\]*","parents":\[(?:"[^"\\]*",?)*\],'
    r'"type":"([^"\\/%]+)","id":"([^"\\]+)"[,}]'
)


def object_key(operation: Operation) -> str:
    """Unambiguous and readable: a type holds no bare `/`, so the first one ends it."""
    return f"{type_prefix(operation.type)}{operation.id}"


def key_of(line: str) -> str:
    """`object_key` of a line of the log that has an object; nearly all need no parser."""
    match = _ORDINARY.match(line)
    return f"{match[1]}/{match[2]}" if match else object_key(parse_line(line))


def type_prefix(name: str) -> str:
    """What the keys of all objects of a type begin with, and no other key."""
    return name.replace("%", "%25").replace("/", "%2F") + "/"


MARK = "change"
MARKED = f',"{MARK}":true}}'


def is_change(line: str) -> bool:
    """Whether *line* has no object. Nobody else can write the mark: it stands behind the data."""
    return line.endswith(MARKED)
