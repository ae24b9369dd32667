"""
The events that a consumer's filter selects from a page or a row, and their refs.

A ref is the address of an event's object, from the template of the feed. It is built when the
event is sent, not when it is stored, so that a changed template applies to all operations.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidings.core.catchup.batches import Chosen, Lasting, PageSlice
from tidings.core.model.events import LEAVE, Event, leave_of, of_line, to_sse, veiled_leave_of
from tidings.core.model.operations import encoded, parse_line
from tidings.core.model.pages import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidings.core.catchup.batches import Part
    from tidings.core.model.events import Event
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


_PLACEHOLDER = re.compile(r"\{\{(type|id)\}\}")
_LASTING_MAX = 8  # pages that many streams are sent at a time; more would only hold memory


def with_ref(event: Event, template: str) -> Event:
    """*event* with `ref` as the last key of its data; `reset` and `live` stay without data."""
    if not template or not event.data:
        return event
    data = json.loads(event.data)
    # One pass: a placeholder in a name is text. Nothing is escaped: a name may be a path.
    ref = _PLACEHOLDER.sub(lambda place: str(data[place[1]]), template)
    return event._replace(data=f'{event.data[:-1]},"ref":{encoded(ref)}}}')


def with_refs(parts: Sequence[Part], template: str) -> Sequence[Part]:
    """*parts* whose events have a `ref` where there is a *template*."""
    return [Linked(part, template) for part in parts] if template else parts


@dataclass(frozen=True, slots=True)
class Linked:
    """Implements `Part`: the events of *part*, each with its `ref`."""

    part: Part
    template: str

    def events(self) -> Iterable[Event]:
        return (with_ref(event, self.template) for event in self.part.events())

    def sse(self) -> str:
        if isinstance(self.part, Lasting):
            return _lasting_text(self.part, self.template)
        return _text(self.part, self.template)


def _text(part: Part, template: str) -> str:
    return "".join(to_sse(with_ref(event, template)) for event in part.events())


@lru_cache(maxsize=_LASTING_MAX)
def _lasting_text(part: Lasting, template: str) -> str:
    """Made once for all streams that wait at the end of a feed."""
    return _text(part, template)
