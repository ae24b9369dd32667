"""
What a named consumer acknowledged out of turn: entries above the first that it did not.

Kept as spans of slots of a page, ascending and apart, because a sink confirms neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.model.cursors import Place

_SPELLED = re.compile(r"([0-9]+)\.([0-9]+)-([0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The slots *first* to *last* of *page*."""

    page: int
    first: int
    last: int


Spans = tuple[Span, ...]


def joined(spans: Spans, entries: Iterable[Place]) -> Spans:
    """*spans* with *entries*."""
    merged: list[Span] = []
    single = (Span(entry.page, entry.slot, entry.slot) for entry in entries)
    for span in sorted([*spans, *single]):
        before = merged[-1] if merged else None
        if before and before.page == span.page and span.first <= before.last + 1:
            merged[-1] = Span(span.page, before.first, max(before.last, span.last))
        else:
            merged.append(span)
    return tuple(merged)


def above(spans: Spans, place: Place) -> Spans:
    """What of *spans* lies above *place*."""
    return tuple(
        Span(span.page, max(span.first, place.slot + 1), span.last)
        if span.page == place.page
        else span
        for span in spans
        if (span.page, span.last) > (place.page, place.slot)
    )


def holds(spans: Spans, page: int, slot: int) -> bool:
    return any(span.page == page and span.first <= slot <= span.last for span in spans)


def encoded(spans: Spans) -> str:
    """As it is kept and sent: `page.first-last`, apart by blanks, all in decimal."""
    return " ".join(f"{span.page}.{span.first}-{span.last}" for span in spans)


def read(text: str) -> Spans:
    """What `encoded` made."""
    return tuple(
        Span(*(int(number) for number in match.groups())) for match in _SPELLED.finditer(text)
    )
