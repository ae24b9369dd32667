"""
Comparing a feed with a source that goes on changing: what differs, and whether that lasts.

The owner of a row posts its change a moment after the row has it, or before. So what a look finds
may be a change on its way, and nothing is corrected for what was found once. A difference lasts
if two looks that lie a grace apart find the same of the row and the same row of the state. Each
look reads the state before the source: what is appended meanwhile moves the object, and a
correction is compared with its place (`sync.apply`).

| row | state | correction |
|---|---|---|
| there | none, or a tombstone | insert |
| there, newer, or with another content | there | update |
| gone | there | delete |
| anything else | | nothing |
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
from tidings.core.model.operations import as_event, line_from
from tidings.core.sync.corrections import NOWHERE, Correction, Position, correction
from tidings.core.sync.diff import YEAR_ONE_MS, Standing, event_for
from tidings.core.sync.dump import moment_of, timestamp_of

if TYPE_CHECKING:
    from tidings.core.state.rows import Row

_MARK_BYTES = 16  # of a line that is remembered until the next look: two never share one
_SAID = ("parents", "tags", "changed", "data")


class Compare(Enum):
    """What of a row that the feed has, too, makes it differ."""

    PRESENCE = "presence"  # nothing: that both have it is all that is known
    TIME = "time"  # its time is newer
    CONTENT = "content"  # it says something else


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to happen to an object: *line* is that of its row, for a delete the state's."""

    event: str
    line: str
    at: Position

    @property
    def mark(self) -> tuple[str, bytes, Position]:
        """The same for the same difference, and small."""
        digest = hashlib.blake2b(self.line.encode(), digest_size=_MARK_BYTES).digest()
        return self.event, digest, self.at

    def correction(self, now_ms: int) -> Correction:
        """A row that does not say when it changed has changed by *now_ms*."""
        line = self.line
        if self.event != "delete" and _ms(line) == YEAR_ONE_MS:
            fields = json.loads(line) | {"timestamp": timestamps.from_ms(now_ms)}
            line = line_from(fields, now_ms=now_ms)
        return correction(as_event(line, self.event), self.at)


def difference(line: str | None, row: Row | None, compare: Compare) -> Difference | None:
    """
    How the feed differs from the source in one object; None: it does not.

    *line* is the object's row as an operation (`diff.dump_line`), None where it is gone, *row* what
    the state has.
    """
    at = NOWHERE if row is None else Position(row.page, row.slot)
    standing = None if row is None or row.deleted else Standing(_ms(row.line), deleted=False)
    event = event_for(_source_ms(line, row, compare), standing)
    if event is None:
        return None
    known = line if line is not None else row.line if row is not None else ""
    return Difference(event, known, at)


def _source_ms(line: str | None, row: Row | None, compare: Compare) -> int | None:
    """The time of the row, as `event_for` compares it with that of the state."""
    if line is None:
        return None
    if compare is Compare.TIME:
        return _ms(line)
    if compare is Compare.PRESENCE or row is None or _content(line) == _content(row.line):
        return YEAR_ONE_MS
    return _ms(row.line) + 1  # what says something else now is newer, whatever the clocks say


def _ms(line: str) -> int:
    return timestamps.to_ms(timestamp_of(moment_of(line)))


def _content(line: str) -> dict[str, Any]:
    """As text of JSON, so that 1, 1.0 and true differ and the order of names does not."""
    fields = json.loads(line)
    return {name: json.dumps(fields.get(name), sort_keys=True) for name in _SAID}


class Verdict(Enum):
    """What a look says of an object."""

    AGREES = "agrees"  # nothing differs, and nothing did
    SETTLED = "settled"  # what differed was a change on its way
    WAITS = "waits"  # for the next look
    LASTS = "lasts"  # it is to be corrected
    RESTLESS = "restless"  # it changed between all looks: its owner is at it


@dataclass(frozen=True, slots=True)
class _Seen:
    mark: tuple[str, bytes, Position]
    since_ms: int
    looks: int


class Suspects:
    """The objects that differed when they were looked at, until they agree or it lasts."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._seen: OrderedDict[str, _Seen] = OrderedDict()  # those looked at longest ago first

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, key: str) -> bool:
        return key in self._seen

    def see(self, key: str, found: Difference | None, *, began_ms: int, ended_ms: int) -> Verdict:
        """What a look between these two times, of a clock that never goes back, says of *key*."""
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
        """Those that may be looked at again, *most* of them at most."""
        due: list[str] = []
        for key, seen in self._seen.items():
            if len(due) == most or now_ms - seen.since_ms < self._grace_ms:
                break
            due.append(key)
        return due

    def next_ms(self) -> int | None:
        """When the first is due; None where there is none."""
        first = next(iter(self._seen.values()), None)
        return None if first is None else first.since_ms + self._grace_ms
