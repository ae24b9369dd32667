"""
Reconciling: what has to be appended so that the feed agrees with a dump of the real data.

These are the rules, in their plainest form; a job that reconciles millions of objects side by
side is tested against them. All times are milliseconds since 1970.

| dump | state | correction |
|---|---|---|
| has the object or not | changed behind the dump's watermark (`sync.watermark`) | nothing |
| has the object | no row | insert |
| is newer | tombstone | insert |
| is newer | row | update |
| is not newer | row or tombstone | nothing |
| lacks the object | row | delete |
| lacks the object | tombstone, or the dump is empty | nothing |
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.model import timestamps
from tidings.core.model.objects import object_key
from tidings.core.model.operations import EVENTS, as_event, event_of, line_from, parse_line
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction
from tidings.core.sync.watermark import Newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidings.core.state.rows import Row
    from tidings.core.sync.watermark import Watermark

_YEAR_ONE_MS = -62_135_596_800_000  # the earliest timestamp there is


@dataclass(frozen=True, slots=True)
class Standing:
    """What the state knows of an object; *later*: it changed behind the watermark of the dump."""

    ms: int
    deleted: bool
    later: bool = False


def event_for(dumped: int | None, standing: Standing | None) -> str | None:
    """
    What has to happen to one object; None: nothing.

    *dumped* is its time in the dump (None: not in it), *standing* what the state has (None: no
    row).
    """
    if standing is not None and standing.later:
        return None
    if dumped is not None:
        return _told(dumped, standing)
    return None if standing is None or standing.deleted else "delete"


def _told(dumped: int, standing: Standing | None) -> str | None:
    if standing is None:
        return "insert"
    if dumped <= standing.ms:
        return None
    return "insert" if standing.deleted else "update"


def dump_line(raw: Mapping[str, object], *, where: str = "") -> str:
    """
    One decoded object of a dump as an operation. An event in it means nothing.

    Without a timestamp it is older than anything: it creates what is missing, and no more.

    Raises:
        InvalidOperation, TooLarge: as for a producer's operation.
    """
    fields = {name: value for name, value in raw.items() if name.lower() != "event"}
    return line_from(fields | {"event": "insert"}, now_ms=_YEAR_ONE_MS, where=where)


def reconcile(
    dump: Iterable[str], rows: Iterable[Row], watermark: Watermark | None = None
) -> list[Correction]:
    """
    The corrections that *dump*, lines of `dump_line`, asks for: inserts, updates, deletes.

    Of the lines of one object the last counts. Without a *watermark* that is the newest line's. A
    delete is the object's row once more, with its time: it is as old as what it deletes, so that
    a dump of later data may bring it back.
    """
    dumped = {}
    newest = _YEAR_ONE_MS
    for line in dump:
        dumped[object_key(parse_line(line))] = line
        newest = max(newest, _ms(line))
    if watermark is None or not dumped:
        watermark = Newest(newest)
    known = {row.key: row for row in rows}
    found = [_correct(dumped.get(key), known.get(key), watermark) for key in known | dumped]
    asked = [each for each in found if each is not None]
    return sorted(asked, key=lambda each: (EVENTS.index(event_of(each.line)), each.key))


def _correct(line: str | None, row: Row | None, watermark: Watermark) -> Correction | None:
    standing = None if row is None else _standing(row, watermark)
    event = event_for(None if line is None else _ms(line), standing)
    source = line if line is not None else row.line if row is not None else None
    if event is None or source is None:
        return None
    at = NOWHERE if row is None else Position(row.page, row.slot)
    return correction(as_event(source, event), at)


def _standing(row: Row, watermark: Watermark) -> Standing:
    return Standing(_ms(row.line), row.deleted, later=watermark.precedes(row))


def _ms(line: str) -> int:
    return timestamps.to_ms(json.loads(line)["timestamp"])
