"""
Diff: the operations that make the feed agree with a dump of the real data.

A job that compares millions of objects side by side calls `event_for` for each of them. All times
are milliseconds since 1970.

| dump | state | correction |
|---|---|---|
| has the object or not | changed after the dump's watermark (`sync.watermark`) | nothing |
| has the object | no row | insert |
| is newer | tombstone | insert |
| is newer | row | update |
| is not newer | row or tombstone | nothing |
| lacks the object | row | delete |
| lacks the object | tombstone, or the dump is empty | nothing |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.model.operations import line_from

if TYPE_CHECKING:
    from collections.abc import Mapping


YEAR_ONE_MS = -62_135_596_800_000  # the earliest possible timestamp


@dataclass(frozen=True, slots=True)
class Standing:
    """The state's row of an object; *later*: it changed after the watermark of the dump."""

    ms: int
    deleted: bool
    later: bool = False


def event_for(dumped: int | None, standing: Standing | None) -> str | None:
    """
    Return the event that corrects one object, None if nothing has to change.

    *dumped* is its time in the dump (None: not in the dump), *standing* its row in the state (None:
    no row).
    """
    if standing is not None and standing.later:
        return None
    if dumped is not None:
        return _upsert_for(dumped, standing)
    return None if standing is None or standing.deleted else "delete"


def _upsert_for(dumped: int, standing: Standing | None) -> str | None:
    if standing is None:
        return "insert"
    if dumped <= standing.ms:
        return None
    return "insert" if standing.deleted else "update"


def dump_line(raw: Mapping[str, object], *, where: str = "") -> str:
    """
    Return the operation of a decoded object of a dump; ignore an event in it.

    An object without a timestamp is older than any other: it is inserted if the state has no row of
    it, and changes nothing otherwise.

    Raises:
        InvalidOperation, TooLarge: as for a producer's operation.
    """
    fields = {name: value for name, value in raw.items() if name.lower() != "event"}
    return line_from(fields | {"event": "insert"}, now_ms=YEAR_ONE_MS, where=where)
