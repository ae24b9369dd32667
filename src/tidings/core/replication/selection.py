"""
Selections: which part of a feed a chained feed copies.

By types and parents as any consumer's filter, and by shares: objects whose key's hash falls into
some of so many parts (`mod`), or lies within a range (`range`). The hash is CRC-32 of the key, the
same in every process and for ever, so that shares of several feeds make up the whole.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidFilter
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.objects import is_change, object_key
from tidings.core.model.operations import as_event, parse_line

if TYPE_CHECKING:
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import Left

HASH_MAX = 0xFFFF_FFFF  # of CRC-32
_MOD = re.compile(r"mod:(\d{1,4}):(\d{1,4}(?:\+\d{1,4})*)", re.ASCII)
_RANGE = re.compile(r"range:([0-9a-f]{8})-([0-9a-f]{8})", re.ASCII)
SHARE_RULE = (
    f"must be mod:PARTS:PART+PART..., with at most {limits.SHARE_PARTS_MAX} parts counted from 0, "
    "or range:FIRST-LAST with 8 hex digits each"
)


def hash_of(key: str) -> int:
    return zlib.crc32(key.encode())


@dataclass(frozen=True, slots=True)
class Mod:
    """Objects whose hash, divided by *parts*, leaves one of *chosen*."""

    parts: int
    chosen: frozenset[int]

    def holds(self, key: str) -> bool:
        return hash_of(key) % self.parts in self.chosen

    def encoded(self) -> str:
        return f"mod:{self.parts}:{'+'.join(map(str, sorted(self.chosen)))}"


@dataclass(frozen=True, slots=True)
class Range:
    """Objects whose hash lies between *first* and *last*, both included."""

    first: int
    last: int

    def holds(self, key: str) -> bool:
        return self.first <= hash_of(key) <= self.last

    def encoded(self) -> str:
        return f"range:{self.first:08x}-{self.last:08x}"


Share = Mod | Range


@dataclass(frozen=True, slots=True)
class Selection:
    """
    What is copied. An entry without an object is in every share, but in no type and no parent.

    Where *filter* names parents it asks for leaves, so that what loses them is removed.
    """

    filter: Filter = EVERYTHING
    share: Share | None = None

    @property
    def is_everything(self) -> bool:
        return self.filter.is_everything and self.share is None

    def keeps(self, line: str, left: tuple[str, ...] | None = ()) -> str | None:
        """
        What is copied of an entry: *line*, a deletion where its object left, or None.

        *left* are the parents that it took away, None where nobody knows.
        """
        if is_change(line):
            return line if self.filter.is_everything else None
        if not (self.filter.leave or self.filter.may_match(line)):
            return None  # which spares most of the parsing
        operation = parse_line(line)
        if self.share is not None and not self.share.holds(object_key(operation)):
            return None
        if self.filter.matches(operation):
            return line
        return as_event(line, "delete") if self.filter.left_by(operation, left) else None


ALL = Selection()


def select(page: Page, selection: Selection, left: Left | None = None) -> Page:
    """
    *page* with those entries alone that *selection* keeps, each in the slot it had.

    *left* are the departures of *page*, None where they are unknown.
    """
    if selection.is_everything:
        return page
    kept = [
        (slot, kept_line)
        for slot, line in page.entries()
        if (kept_line := selection.keeps(line, None if left is None else left.get(slot, ())))
    ]
    return page.only(kept)


def parse_share(text: str) -> Share | None:
    """
    What `encoded` made; None for nothing.

    Raises:
        InvalidFilter: it is no share.
    """
    if not text:
        return None
    if match := _MOD.fullmatch(text):
        parts, chosen = int(match[1]), frozenset(map(int, match[2].split("+")))
        if 0 < parts <= limits.SHARE_PARTS_MAX and max(chosen) < parts:
            return Mod(parts, chosen)
    elif match := _RANGE.fullmatch(text):
        first, last = int(match[1], 16), int(match[2], 16)
        if first <= last:
            return Range(first, last)
    raise InvalidFilter(SHARE_RULE, field="share", value=text)
