"""
Event ids and cursors: a place in a feed as clients see it.

24 lower-case hex digits: 8 of commit time in Unix seconds, 10 of page, 6 of slot. Slots from
0x800000 up mark a place in a replication: seconds is then the moment since when objects are
wanted (0: all), page is where the log continues afterwards, and the slot holds the bucket and how
much of it was told.
Decimal ids of 13 digits or fewer ask for a replication of what changed since that millisecond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidings.core import limits
from tidings.core.errors import InvalidCursor

NOW = "now"
PAGE_END = 0x7FFFFF  # the slot behind the last entry of a page, however many it has
_SECONDS_MAX = 0xFFFFFFFF  # eight hex digits
_REPLICATION = 0x800000
_TOMBSTONES = 0x400000
_BUCKET_BITS = 7  # of the slot, below those of the part; ids of before there were parts have part 0
PARTS_MAX = (_TOMBSTONES >> _BUCKET_BITS) - 1
_HEX = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,13}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Behind the entry *slot* of *page*; *seconds* is when the page was committed."""

    page: int
    slot: int
    seconds: int

    def encode(self) -> str:
        return f"{self.seconds:08x}{self.page:010x}{self.slot:06x}"


@dataclass(frozen=True, slots=True)
class Replication:
    """
    In the middle of a copy: start again in *bucket*, then go on in the log after *page*.

    *part* says how many times `limits.COPY_PART_ROWS` living objects of the bucket lie before.
    *since_s* 0 wants every object, else those changed at or after it; *tombstones* says
    whether deleted ones are told too.
    """

    since_s: int
    page: int
    bucket: int
    tombstones: bool
    part: int = 0

    def encode(self) -> str:
        slot = _REPLICATION | (_TOMBSTONES if self.tombstones else 0)
        slot |= self.part << _BUCKET_BITS | self.bucket
        return f"{self.since_s:08x}{self.page:010x}{slot:06x}"


@dataclass(frozen=True, slots=True)
class Since:
    """
    A replication id: what changed at or after this millisecond.

    0 is everything behind a `reset`, less than 0 everything without one, as after a `reset`.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """From the end of the log."""


Cursor = Place | Replication | Since | Now
START = Place(page=0, slot=PAGE_END, seconds=0)


def parse(text: str) -> Cursor:
    """
    Read a cursor of any kind: an event id, a replication id, `now` or nothing.

    Raises:
        InvalidCursor: none of them.
    """
    if text in ("", NOW):
        return Now()
    if len(text) <= limits.CURSOR_CHARS_MAX and _DECIMAL.fullmatch(text) and len(text) <= 13:
        return Since(min(int(text), _SECONDS_MAX * 1000))
    if _HEX.fullmatch(text):
        return _from_hex(text)
    raise InvalidCursor(
        "must be 24 hex digits, at most 13 decimal digits, or 'now'", field="cursor", value=text
    )


def known(text: object) -> Cursor | None:
    """The cursor that *text*, whatever it is, spells; None for nothing and for what is none."""
    try:
        return parse(text) if isinstance(text, str) and text else None
    except InvalidCursor:
        return None


def _from_hex(text: str) -> Place | Replication:
    seconds, page, slot = int(text[:8], 16), int(text[8:18], 16), int(text[18:], 16)
    if slot < _REPLICATION:
        return Place(page, slot, seconds)
    part, bucket = divmod(slot & ~(_REPLICATION | _TOMBSTONES), 1 << _BUCKET_BITS)
    if bucket > limits.BUCKETS:
        return Place(page, slot & PAGE_END, seconds)  # somebody else's id: only its time counts
    return Replication(seconds, page, bucket, bool(slot & _TOMBSTONES), part)


def prefix(page: int, seconds: int) -> str:
    """The first 18 digits of every event id on *page*."""
    return f"{seconds:08x}{page:010x}"
