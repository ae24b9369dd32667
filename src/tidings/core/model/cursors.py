"""Cursors, which clients send to resume a feed. An event id is one kind of cursor.

An event id has 24 lower-case hex digits: 8 for the page's commit time in Unix seconds, 10 for the
page number, and 6 for the slot. The slot is the index of the operation in its page.

If the slot is 0x800000 or more, the cursor is a position in a replication, which sends rows of the
state before pages of the log. The replication sends the objects that were changed at or after the
time in the cursor, or all objects if that time is 0. The slot contains the current bucket of the
state and the progress within the bucket. After the rows, the replication continues in the log after
the page in the cursor.

A decimal number of at most 13 digits is a time in milliseconds. It requests a replication of all
changes since that time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidings.core import limits
from tidings.core.errors import InvalidCursor

NOW = "now"
PAGE_END = 0x7FFFFF  # the slot of a position after all operations of a page
_SECONDS_MAX = 0xFFFFFFFF  # eight hex digits
_REPLICATION = 0x800000
_TOMBSTONES = 0x400000
# The lowest bits of the slot contain the bucket, and the bits above them the part (see
# `Replication`). Cursors of older releases, which had no parts, have part 0.
_BUCKET_BITS = 7
PARTS_MAX = (_TOMBSTONES >> _BUCKET_BITS) - 1
_HEX = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,13}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The position after slot *slot* of page *page*, which was committed at *seconds*."""

    page: int
    slot: int
    seconds: int

    def encode(self) -> str:
        return f"{self.seconds:08x}{self.page:010x}{self.slot:06x}"


@dataclass(frozen=True, slots=True)
class Replication:
    """A position in a replication, which resumes in *bucket* and then continues in the log.

    The log is read after *page*. *part* counts the blocks of `limits.COPY_PART_ROWS` existing
    objects that were already sent from *bucket*. *since_s* selects the objects changed at or after
    that time in Unix seconds; 0 selects all objects. *tombstones* is True if deleted objects are
    also sent.
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
    """A request for a replication of the changes at or after the time *ms* in milliseconds.

    If *ms* is 0, a `reset` is sent first, then all objects. If *ms* is negative, all objects are
    sent without a `reset`, as if the `reset` had been sent already.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """The end of the log."""


Cursor = Place | Replication | Since | Now
START = Place(page=0, slot=PAGE_END, seconds=0)


def parse(text: str) -> Cursor:
    """Parse a cursor of any kind. An empty string is the same as `now`.

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
    """Return *text* parsed as a cursor, or None if *text* is empty or not a valid cursor."""
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
        # Another system made this id. Only the time in the id is used.
        return Place(page, slot & PAGE_END, seconds)
    return Replication(seconds, page, bucket, bool(slot & _TOMBSTONES), part)


def prefix(page: int, seconds: int) -> str:
    """Return the first 18 digits, which all event ids of *page* have in common."""
    return f"{seconds:08x}{page:010x}"
