"""The position of a named consumer, and the entries after the position that are acknowledged.

A position is a place in the log, a place within a copy of the state, or `Since(0)` before a copy
has begun. Everything up to the position is acknowledged. A consumer that begins with the oldest
page, and has not acknowledged anything, has the position None.

Entries acknowledged after the position are stored as ascending, disjoint ranges of the slots of a
page. Ranges are compact, because a worker usually acknowledges adjacent entries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidConsumer
from tidings.core.model.cursors import (
    PAGE_END,
    START,
    Place,
    Replication,
    Since,
    parse,
    parse_cursor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Position = Place | Replication | Since
COPY = Since(0)
OLDEST, NOW, COPIED = "oldest", "now", "copy"
_SPAN = re.compile(r"([0-9]+)\.([0-9]+)-([0-9]+)", re.ASCII)


def rank(position: Position | None) -> tuple[int, int, int]:
    """Return the key by which positions are compared, so that a consumer never moves back."""
    match position:
        case Place(page, slot, _):
            return page, slot, 0
        case Replication(_, page, bucket, _):
            return page, -1, bucket
        case Since():
            return -1, 0, 0
    return -2, 0, 0


def later(one: Position | None, other: Position | None) -> Position | None:
    return one if rank(one) > rank(other) else other


def last_unneeded_page(position: Position | None) -> int | None:
    """Return the last page that a consumer at *position* has handled.

    Return 0 before the first page, and None before a copy of the state, when no page is needed.
    """
    match position:
        case Place(page, slot, _):
            return page if slot >= PAGE_END else page - 1
        case Replication(_, page, _, _):
            return page
        case Since():
            return None
    return 0


def fell_off(position: Position | None, floor: int) -> bool:
    """Return True if a consumer at *position* still needs pages below *floor*.

    A consumer without a position (None) starts at the oldest page, so it never falls off.
    """
    done = last_unneeded_page(position)
    return position is not None and done is not None and done + 1 < floor


def encode_position(position: Position | None) -> str | None:
    """Encode *position* for clients; `0` stands for a copy that has not begun."""
    if position is None:
        return None
    return "0" if isinstance(position, Since) else position.encode()


def read(text: str | None) -> Position | None:
    """Decode *text*, which `encode_position` returned; return None if it is None or empty."""
    if not text:
        return None
    position = parse(text)
    assert isinstance(position, Position)
    return position


def oldest(floor: int) -> str:
    """Return the cursor that continues with the first page of a log that begins at *floor*.

    A cursor at the end of the page before *floor* could not be checked, because that page is gone.
    Return instead the cursor of a copy that has no rows left, which continues with page *floor*.
    """
    if floor <= 1:
        return START.encode()
    return Replication(0, floor - 1, limits.BUCKETS, tombstones=False).encode()


def cursor(position: Position | None, floor: int) -> str:
    """Return the cursor that a worker resumes from, in a log that begins at *floor*.

    A consumer at the end of the last trimmed page has missed nothing. The cursor of this page would
    be treated as a time, because the page is gone, and the worker would get rows of the state.
    Return instead the cursor that continues at the floor.
    """
    gone = isinstance(position, Place) and position.slot >= PAGE_END and position.page < floor
    return oldest(floor) if position is None or gone else encode_position(position) or ""


def parse_position(text: object, field: str) -> Position:
    """Parse an id from a client: of an entry, of the end of a page, or of a place within a copy.

    Raises:
        InvalidConsumer: *text* is not an id.
    """
    position = parse_cursor(text)
    if not isinstance(position, Place | Replication):
        raise InvalidConsumer("must be the id of an event", field=field, value=text)
    return position


def entry(text: object, field: str) -> Place:
    """Parse the id of one entry of the log.

    Raises:
        InvalidConsumer: *text* is not the id of an entry.
    """
    place = parse_cursor(text)
    if not isinstance(place, Place) or place.slot >= PAGE_END:
        raise InvalidConsumer("must be the id of one operation", field=field, value=text)
    return place


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The slots *first* to *last* of *page*."""

    page: int
    first: int
    last: int


Spans = tuple[Span, ...]


def join_spans(spans: Spans, entries: Iterable[Place]) -> Spans:
    """Add *entries* to *spans*."""
    merged: list[Span] = []
    single = (Span(entry.page, entry.slot, entry.slot) for entry in entries)
    for span in sorted([*spans, *single]):
        before = merged[-1] if merged else None
        if before and before.page == span.page and span.first <= before.last + 1:
            merged[-1] = Span(span.page, before.first, max(before.last, span.last))
        else:
            merged.append(span)
    return tuple(merged)


def spans_after(spans: Spans, place: Place) -> Spans:
    """Return the part of *spans* after *place*."""
    return tuple(
        Span(span.page, max(span.first, place.slot + 1), span.last)
        if span.page == place.page
        else span
        for span in spans
        if (span.page, span.last) > (place.page, place.slot)
    )


def in_spans(spans: Spans, place: Place) -> bool:
    return any(span.page == place.page and span.first <= place.slot <= span.last for span in spans)


def encode_spans(spans: Spans) -> str:
    """Encode each span as `page.first-last` in decimal, separated by blanks."""
    return " ".join(f"{span.page}.{span.first}-{span.last}" for span in spans)


def decode_spans(text: str) -> Spans:
    """Decode *text*, which `encode_spans` returned."""
    return tuple(
        Span(*(int(number) for number in match.groups())) for match in _SPAN.finditer(text)
    )
