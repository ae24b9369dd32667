"""What a consumer's filter picks of a page, and of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.catchup.batches import Chosen, PageSlice
from tidings.core.model.events import LEAVE, Event, leave_of, of_line, veiled_leave_of
from tidings.core.model.operations import parse_line
from tidings.core.model.pages import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.core.catchup.batches import Part
    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import Left
    from tidings.core.state.rows import Row


def page_part(page: Page, wanted: Filter, first: int = 0, left: Left | None = None) -> Part:
    """What *wanted* matches of *page* from slot *first* on; for *left* see `page_events`."""
    if wanted.is_everything:
        return PageSlice(page, first)
    return Chosen(list(page_events(page, wanted, first, left)))


def page_events(
    page: Page, wanted: Filter, first: int = 0, left: Left | None = None
) -> Iterator[Event]:
    """
    The operations of *page* from slot *first* on that *wanted* matches.

    And where it wants leaves, those that took its parents away: *left* is the page's
    departures, None where they are unknown.
    """
    if wanted.leave:
        yield from _events_and_leaves(page, wanted, first, left)
        return
    if wanted.is_everything:
        yield from PageSlice(page, first).events()
        return
    text = page.text
    if not wanted.may_match(text):
        return
    prefix = page.id_prefix
    for slot, line in page.numbered(lines_of(text), first):
        if wanted.may_match(line) and wanted.matches(parse_line(line)):
            yield of_line(prefix, slot, line, page.trace)


def _events_and_leaves(
    page: Page, wanted: Filter, first: int, left: Left | None
) -> Iterator[Event]:
    if page.compacted:
        left = None  # what took a parent away may be gone, so that departures say too little
    for slot, line in page.entries(first):
        operation = parse_line(line)
        if wanted.matches(operation):
            yield of_line(page.id_prefix, slot, line, page.trace)
        elif wanted.left_by(operation, None if left is None else left.get(slot, ())):
            event = of_line(page.id_prefix, slot, line, page.trace)
            yield veiled_leave_of(event) if wanted.veiled else leave_of(event)


def row_name(row: Row, wanted: Filter, *, changed: bool) -> str:
    """
    What the event of *row* is called; empty where *wanted* has no use for it.

    The state does not know what an object left. Where a consumer is sent what *changed* since
    it was here last, whatever does not match may have left.
    """
    operation = None if wanted.is_everything else parse_line(row.line)
    if operation is None or wanted.matches(operation):
        return "delete" if row.deleted else "insert"
    return LEAVE if changed and wanted.left_by(operation, None) else ""
