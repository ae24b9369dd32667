"""
Event ids and cursors, which are places in a feed as clients see them.

A cursor has 24 lower-case hex digits: 8 of commit time in Unix seconds, 10 of page, 6 of slot. A
slot of 0x800000 or more marks a position in a replication, which copies the state. The replication
copies the objects that were changed at or after the time in seconds, or all objects if the seconds
are 0. The slot has the bucket and the progress within the bucket. After the copy, the replication
continues in the log after the page. A decimal id of at most 13 digits is a time in milliseconds and
requests a replication of all changes since that time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidings.core import limits
from tidings.core.errors import InvalidCursor

NOW = "now"
PAGE_END = 0x7FFFFF  # the slot after the last entry of any page
_SECONDS_MAX = 0xFFFFFFFF  # eight hex digits
_REPLICATION = 0x800000
_TOMBSTONES = 0x400000
# The lowest bits of the slot have the bucket, and the bits above them the part. Ids of older
# releases, which had no parts, have part 0.
_BUCKET_BITS = 7
PARTS_MAX = (_TOMBSTONES >> _BUCKET_BITS) - 1
_HEX = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,13}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The position after the entry *slot* of *page*; *seconds* is the commit time of the page."""

    page: int
    slot: int
    seconds: int

    def encode(self) -> str:
        return f"{self.seconds:08x}{self.page:010x}{self.slot:06x}"


@dataclass(frozen=True, slots=True)
class Replication:
    """
    A position in a copy. The copy resumes in *bucket*; then the log continues after *page*.

    *part* is the number of blocks, each of `limits.COPY_PART_ROWS` existing objects, that the
    bucket has before the position. *since_s* selects the objects changed at or after that time in
    Unix seconds; 0 selects all objects. *tombstones* is True if deleted objects are also sent.
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
    A replication id, which requests the changes at or after the time *ms* in milliseconds.

    0 requests a `reset`, followed by all objects. A negative value requests all objects without a
    `reset`, as if the `reset` had been sent already.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """The end of the log."""


Cursor = Place | Replication | Since | Now
START = Place(page=0, slot=PAGE_END, seconds=0)


def parse(text: str) -> Cursor:
    """
    Parse a cursor of any kind: an event id, a replication id, `now` or an empty string.

    Raises:
        InvalidCursor: *text* is not a cursor.
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


def parse_cursor(text: object) -> Cursor | None:
    """Return the cursor spelled by *text*, or None if it is empty or not a valid cursor."""
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
        # Another system made this id. Only the time of the place is used.
        return Place(page, slot & PAGE_END, seconds)
    return Replication(seconds, page, bucket, bool(slot & _TOMBSTONES), part)


def prefix(page: int, seconds: int) -> str:
    """Return the first 18 digits of every event id on *page*."""
    return f"{seconds:08x}{page:010x}"
