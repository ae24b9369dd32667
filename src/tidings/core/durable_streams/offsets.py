"""
Offsets: a place in a feed as readers of a stream see it.

The digits of an event id (`model.cursors`) with those of the seconds at the end, so that offsets
sort as text: 10 of page, 6 of slot, 8 of commit time.
"""

from __future__ import annotations

import re

from tidings.core import limits
from tidings.core.durable_streams.stream import InvalidStream
from tidings.core.model.cursors import PAGE_END, Place

BEGINNING, NOW = "-1", "now"
_EPOCH_MS = 1_728_432_000_000  # 2024-10-09, from when the protocol counts its cursors
_OFFSET = re.compile(r"([0-9a-f]{10})([0-9a-f]{6})([0-9a-f]{8})", re.ASCII)


def encode(place: Place) -> str:
    return f"{place.page:010x}{place.slot:06x}{place.seconds:08x}"


def parse(text: str) -> Place:
    """
    The place that *text* names.

    Raises:
        InvalidStream: it is no offset.
    """
    match = _OFFSET.fullmatch(text)
    page, slot, seconds = (int(each, 16) for each in match.groups()) if match else (0, -1, 0)
    if not 0 <= slot <= PAGE_END:
        rule = f"must be an offset that was told, {BEGINNING} or {NOW}"
        raise InvalidStream(rule, field="offset", value=text)
    return Place(page, slot, seconds)


def live_cursor(given: str, now_ms: int) -> int:
    """
    The cursor of an answer to a live reader that came with the cursor *given*, "" for none.

    It ascends with time, and is above that of the reader, so that no cache gives it the answer
    again that it had before.
    """
    current = (now_ms - _EPOCH_MS) // (limits.STREAM_CURSOR_S * 1000)
    is_one = given.isascii() and given.isdigit() and len(given) <= limits.STREAM_CURSOR_DIGITS_MAX
    return max(current, int(given) + 1) if is_one else current
