"""Compare a feed with a source that changes, and find the differences that last.

The owner of a row in the source posts a change a moment before or after the row is written. A
comparison may therefore find a change that is in the source or in the feed, but not yet in both.
So nothing is corrected after a single comparison. A difference lasts if two comparisons, at least
the grace time apart, find the same row in the source and the same row in the state. Each comparison
reads the state before the source. If an operation is appended between the comparison and the
correction, the position of the object changes, and `sync.apply` drops the correction.

| source | state | correction |
|---|---|---|
| has the row | has no row, or a tombstone | insert |
| has a newer row, or other content | has a row | update |
| lacks the row | has a row | delete |
| any other combination | | nothing |
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.model import timestamps
from tidings.core.model.operations import as_event, line_from, parse_number, spell_numbers
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction
from tidings.core.sync.dumps import (
    YEAR_ONE_MS,
    StoredObject,
    dump_line,
    event_for,
    moment_of,
    timestamp_of,
)

if TYPE_CHECKING:
    from tidings.core.state.rows import Row

_MARK_BYTES = 16  # size of a line's digest, which is kept until the next comparison
_SORTED = json.JSONEncoder(sort_keys=True)
_SAID = ("parents", "tags", "changed", "data")


class Compare(Enum):
    """The criterion by which an object's row in the source differs from its row in the state."""

    PRESENCE = "presence"  # existing rows never differ, because only their existence is known
    TIME = "time"  # the time in the source is newer
    CONTENT = "content"  # the content in the source is different


@dataclass(frozen=True, slots=True)
class Difference:
    """A required change of an object, which is at *at* in the log.

    *line* is the row of the source as an operation, or the row of the state if *event* is `delete`.
    """

    event: str
    line: str
    at: Position

    @property
    def mark(self) -> tuple[str, bytes, Position]:
        """Return a small value that is equal for equal differences."""
        digest = hashlib.blake2b(self.line.encode(), digest_size=_MARK_BYTES).digest()
        return self.event, digest, self.at

    def correction(self, now_ms: int) -> Correction:
        """Return the correction. A row without a time of change gets the time *now_ms*."""
        line = self.line
        if self.event != "delete" and _ms(line) == YEAR_ONE_MS:
            fields = json.loads(line, parse_float=parse_number)
            line = line_from(fields | {"timestamp": timestamps.from_ms(now_ms)}, now_ms=now_ms)
        return correction(as_event(line, self.event), self.at)


def difference(line: str | None, row: Row | None, compare: Compare) -> Difference | None:
    """Return how the feed differs from the source in one object, or None if it does not differ.

    *line* is the object's row in the source as an operation (`dumps.dump_line`), or None if the row
    does not exist. *row* is the object's row in the state.
    """
    at = NOWHERE if row is None else Position(row.page, row.slot)
    stored = None if row is None or row.deleted else StoredObject(_ms(row.line), deleted=False)
    if line is not None and row is not None and stored is not None:
        line = _with_tags(line, row.line)
    event = event_for(_source_ms(line, row, compare), stored)
    if event is None:
        return None
    known = line if line is not None else row.line if row is not None else ""
    return Difference(event, known, at)


def _source_ms(line: str | None, row: Row | None, compare: Compare) -> int | None:
    """Return the time of the source's row, which `event_for` compares with the state's row."""
    if line is None:
        return None
    if compare is Compare.TIME:
        return _ms(line)
    if compare is Compare.PRESENCE or row is None or _content(line) == _content(row.line):
        return YEAR_ONE_MS
    return _ms(row.line) + 1  # different content counts as newer, whatever its time is


def _with_tags(line: str, stored: str) -> str:
    """Return *line* with the tags of the line *stored*, because no column of a table has tags."""
    if '"tags"' not in stored or not (tags := json.loads(stored).get("tags")):
        return line
    return dump_line({"tags": tags} | json.loads(line, parse_float=parse_number))


def _ms(line: str) -> int:
    return timestamps.to_ms(timestamp_of(moment_of(line)))


def _content(line: str) -> dict[str, Any]:
    """Return the compared fields as JSON texts.

    Texts of 1, 1.0 and true differ, unlike these values in Python. The order of keys is ignored.
    """
    fields = json.loads(line, parse_float=parse_number)
    return {name: spell_numbers(fields.get(name), _SORTED) for name in _SAID}


class Verdict(Enum):
    """The result of a comparison of one object."""

    AGREES = "agrees"  # neither this comparison nor the previous one found a difference
    SETTLED = "settled"  # an earlier difference is gone; it was a change that had not arrived yet
    WAITS = "waits"  # there is a difference, which the next comparison checks again
    LASTS = "lasts"  # the difference has to be corrected
    RESTLESS = "restless"  # the object changed before each comparison, so it is not corrected


@dataclass(frozen=True, slots=True)
class _Seen:
    mark: tuple[str, bytes, Position]
    since_ms: int
    looks: int


class Suspects:
    """The objects with a difference, until the difference disappears or is known to last."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._seen: OrderedDict[str, _Seen] = OrderedDict()  # oldest comparison first

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def see(self, key: str, found: Difference | None, *, began_ms: int, ended_ms: int) -> Verdict:
        """Record the difference *found* for *key*, or None for no difference; return the verdict.

        The comparison took place between *began_ms* and *ended_ms* of a monotonic clock.
        """
        before = self._seen.pop(key, None)
        if found is None:
            return Verdict.AGREES if before is None else Verdict.SETTLED
        mark = found.mark
        if before is not None and before.mark == mark:
            if began_ms - before.since_ms >= self._grace_ms:
                return Verdict.LASTS
            self._seen[key] = before
            self._seen.move_to_end(key, last=False)
            return Verdict.WAITS
        looks = 1 if before is None else before.looks + 1
        if looks > limits.LIVE_LOOKS_MAX:
            return Verdict.RESTLESS
        self._seen[key] = _Seen(mark, ended_ms, looks)
        return Verdict.WAITS

    def due(self, now_ms: int, most: int) -> list[str]:
        """Return at most *most* keys that may be compared again."""
        due: list[str] = []
        for key, seen in self._seen.items():
            if len(due) == most or now_ms - seen.since_ms < self._grace_ms:
                break
            due.append(key)
        return due

    def next_ms(self) -> int | None:
        """Return the time when the first object is due, or None."""
        first = next(iter(self._seen.values()), None)
        return None if first is None else first.since_ms + self._grace_ms
