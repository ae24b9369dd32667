"""Objects: what an operation is about, and which entries of the log have none."""

from __future__ import annotations

from tidings.core.model.operations import Operation


def object_key(operation: Operation) -> str:
    """Unambiguous and readable: a type holds no bare `/`, so the first one ends it."""
    return f"{type_prefix(operation.type)}{operation.id}"


def type_prefix(name: str) -> str:
    """What the keys of all objects of a type begin with, and no other key."""
    return name.replace("%", "%25").replace("/", "%2F") + "/"


MARK = "change"
MARKED = f',"{MARK}":true}}'


def is_change(line: str) -> bool:
    """Whether *line* has no object. Nobody else can write the mark: it stands behind the data."""
    return line.endswith(MARKED)
