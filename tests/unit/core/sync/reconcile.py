"""The corrections that a dump implies, by definition: the Spark job and the corrector are compared
with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidings.core.model import timestamps
from tidings.core.model.operations import EVENTS, as_event, event_of, object_key, parse_line
from tidings.core.state.rows import Row
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction
from tidings.core.sync.dumps import StoredObject, event_for
from tidings.core.sync.watermark import Moment, Newest, Reached, Watermark

_YEAR_ONE_MS = timestamps.to_ms("0001-01-01T00:00:00Z")


def reconcile(
    dump: Iterable[str], rows: Iterable[Row], watermark: Watermark | None = None
) -> list[Correction]:
    """Return the corrections that *dump*, lines of `dump_line`, implies: inserts, updates, deletes.

    The last line of an object counts. The default *watermark* is the time of the newest line. A
    delete repeats the object's row with its time: it is as old as the row, so that a dump with
    later data can restore the object.
    """
    dumped = {}
    newest = _YEAR_ONE_MS
    for line in dump:
        dumped[object_key(parse_line(line))] = line
        newest = max(newest, _ms(line))
    if watermark is None or not dumped:
        watermark = Newest(newest)
    known = {row.key: row for row in rows}
    verdicts = [_correct(dumped.get(key), known.get(key), watermark) for key in known | dumped]
    corrections = [each for each in verdicts if each is not None]
    return sorted(corrections, key=lambda each: (EVENTS.index(event_of(each.line)), each.key))


def _correct(line: str | None, row: Row | None, watermark: Watermark) -> Correction | None:
    stored = None if row is None else _standing(row, watermark)
    event = event_for(None if line is None else _ms(line), stored)
    source = line if line is not None else row.line if row is not None else None
    if event is None or source is None:
        return None
    at = NOWHERE if row is None else Position(row.page, row.slot)
    return correction(as_event(source, event), at)


def _standing(row: Row, watermark: Watermark) -> StoredObject:
    return StoredObject(_ms(row.line), row.deleted, later=precedes(watermark, row))


def precedes(watermark: Watermark, row: Row) -> bool:
    """Return True if *row* changed after the dump began, so that the dump may lack the change."""
    if isinstance(watermark, Reached):
        return Position(row.page, row.slot) > watermark.position
    ms = row.at_ms if isinstance(watermark, Moment) else _ms(row.line)
    return ms >= watermark.ms


def _ms(line: str) -> int:
    return timestamps.to_ms(json.loads(line)["timestamp"])
