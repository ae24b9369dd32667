"""Corrections, which are the operations that a plan appends, each with the position of its object.

A plan is stored in parts. A part is gzipped NDJSON with one correction per line. The line is an
operation as producers send it, with a timestamp and the additional field `at`. This field is the
position of the object's row in the state when the plan was made: 10 hex digits of page and 6 of
slot, or "" for an object without a row.

    {"event":"update","timestamp":"...","parents":[],"type":"video","id":"x32","at":"00..."}

A correction is appended only if its object is still at that position (`sync.apply`).

`Conflicts` compares the positions of the objects of some corrections with the log. Rows of the
state and pages after the state's checkpoint may be passed in any order, because the highest
position of an object counts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from tidings.core.errors import InvalidOperation
from tidings.core.model.json_body import decode_json
from tidings.core.model.operations import key_of, line_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.model.pages import Page
    from tidings.core.state.rows import Row


_POSITION = re.compile(r"[0-9a-fA-F]{16}", re.ASCII)


class Position(NamedTuple):
    """The position of an object's latest operation in the log."""

    page: int
    slot: int

    def encode(self) -> str:
        return f"{self.page:010x}{self.slot:06x}" if self != NOWHERE else ""


NOWHERE = Position(0, 0)  # the position of an object without a row; the first page has the number 1


@dataclass(frozen=True, slots=True)
class Correction:
    """An operation, as the log's *line*, to append if the object *key* is still at *at*."""

    key: str
    line: str
    at: Position


def correction(line: str, at: Position) -> Correction:
    return Correction(key_of(line), line, at)


def encode(correction: Correction) -> str:
    """Return *correction* as a line of a part."""
    return f'{correction.line[:-1]},"at":"{correction.at.encode()}"}}'


def decode(text: bytes, *, where: str = "") -> Correction:
    """Parse and validate a line of a part, which may have been written by another program.

    Raises:
        InvalidOperation: the line is not JSON, or a field is missing or breaks its rule.
        TooLarge: a field or the line is longer than `limits` allows.
    """
    raw = decode_json(text, where.rstrip(": "))
    line = line_from(raw, now_ms=0, where=where)
    if raw.get("timestamp") is None:  # its default, the current time, would differ between runs
        raise InvalidOperation("is required", field=f"{where}timestamp")
    return correction(line, _position(raw, where))


def read(part: Iterable[bytes], *, handled: int = 0) -> Iterator[Correction]:
    """Yield the corrections of *part*, an iterable of lines, except the first *handled* lines.

    Raises:
        InvalidOperation, TooLarge: see `decode`; the error names the line number, from 1.
    """
    for number, text in enumerate(part, 1):
        if number > handled:
            yield decode(text, where=f"line {number}: ")


def _position(raw: dict[str, Any], where: str) -> Position:
    at = raw.get("at")
    if at == "":
        return NOWHERE
    if not isinstance(at, str) or not _POSITION.fullmatch(at):
        rule = 'must be 16 hex digits, or "" for an object without a row'
        raise InvalidOperation(rule, field=f"{where}at", value=at)
    return Position(int(at[:10], 16), int(at[10:], 16))


class Verdict(Enum):
    """The state of a correction's object, compared with the plan."""

    UNCHANGED = "stands"  # the object is still at its position in the plan
    MOVED = "moved"  # the object has changed since the plan was made
    DONE = "done"  # the latest operation of the object is equal to the correction


class Conflicts:
    """The latest position of each object of *corrections*, according to the rows and pages seen.

    *page* is the last page that was read; later pages are unknown.
    """

    def __init__(self, corrections: Iterable[Correction], page: int) -> None:
        self.page = page
        self._wanted = {each.key: each for each in corrections}
        self._at: dict[str, Position] = {}
        self._done: dict[str, bool] = {}

    def copy(self) -> Conflicts:
        copied = Conflicts(self._wanted.values(), self.page)
        copied._at, copied._done = dict(self._at), dict(self._done)
        return copied

    def verdict(self, correction: Correction) -> Verdict:
        key = correction.key
        if self._at.get(key, NOWHERE) == correction.at:
            return Verdict.UNCHANGED
        return Verdict.DONE if self._done.get(key) else Verdict.MOVED

    def verdicts(self, corrections: Iterable[Correction]) -> Counter[Verdict]:
        return Counter(map(self.verdict, corrections))

    def see_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._see(row.key, Position(row.page, row.slot), row.line)

    def see_pages(self, pages: Sequence[Page]) -> None:
        """Read *pages*, which follow `page` without a hole."""
        for page in pages:
            assert page.first <= self.page + 1
            for slot, line in page.entries():
                self._see(key_of(line), Position(page.number, slot), line)
            self.page = page.number

    def _see(self, key: str, at: Position, line: str) -> None:
        """Compare *line* at once instead of storing it, because lines may be large."""
        if key in self._wanted and at > self._at.get(key, NOWHERE):
            self._at[key] = at
            self._done[key] = line == self._wanted[key].line
