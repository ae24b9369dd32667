"""Select the events of a page or a row that match a consumer's filter, and add the field `ref`.

The field `ref` is the address of the event's object, built from a template of the feed. It is added
when the event is sent, not when the operation is stored, so that a changed template applies to all
operations.

A part is a sequence of events of a catch-up. Operations become SSE text by slicing their lines.
This avoids building events, which would be most of the cost of a replay. The lines of a large page
are parsed once for all filters, and filters that select the same lines share their text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidings.core.model.events import (
    LEAVE,
    Event,
    content_of,
    leave_of,
    of_line,
    redacted_leave_of,
    to_sse,
)
from tidings.core.model.filters import Names
from tidings.core.model.operations import (
    begins_with_erasure,
    data_of,
    event_of,
    is_erasure,
    operation_of,
    to_canonical_json,
)
from tidings.core.model.pages import lines_of
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.state.removed_parents import RemovedBySlot
    from tidings.core.state.rows import Row


# The last pages that were sent, for the streams that come back together after a restart: 4 MB
# of ASCII.
_SENT_MAX, _SENT_CHARS_MAX, _LONG_MAX = 128, 32 * 1024, 16
_sent: Newest[object, str] = Newest(_SENT_MAX)
_sent_long: Newest[object, str] = Newest(_LONG_MAX)  # texts with more characters
# Texts of pages that a filter was applied to. The second filter has the lines parsed for all that
# follow. Parsed lines take 4 times the memory of their text, with many parents 20 times.
_NAMED_MAX, _NAMED_CHARS_MAX = 32, 2 * 1024 * 1024
_named: Newest[str, Names | None] = Newest(_NAMED_MAX)
_UNNAMED_LINES = 16  # so few lines are parsed faster than a hundred values are searched in names


@dataclass(frozen=True, slots=True)
class Chosen:
    """Events that were selected because they match a filter, or an event `reset` or `live`."""

    picked: Sequence[Event]

    def events(self) -> Iterable[Event]:
        return self.picked

    def sse(self) -> str:
        return "".join(map(to_sse, self.picked))


NO_EVENTS = Chosen(())


@dataclass(frozen=True, slots=True)
class PageSlice:
    """The operations of *page* from slot *first* on; for *erasures* see `Filter`."""

    page: Page
    first: int = 0
    erasures: bool = False

    def events(self) -> Iterable[Event]:
        prefix = self.page.id_prefix
        for slot, line in self.page.entries(self.first):
            yield of_line(prefix, slot, line, self.page.trace, erasures=self.erasures)

    def sse(self) -> str:
        """Return the text, from memory if another stream has sent the same page a moment ago."""
        if self.first:
            return self._text()
        page = self.page
        key = page.id_prefix, page.body, page.slots, self.erasures
        text = _sent.get(key) or _sent_long.get(key)
        if text is None:
            text = self._text()
            cache = _sent if len(text) <= _SENT_CHARS_MAX else _sent_long
            cache[key] = text
        return text

    def _text(self) -> str:
        prefix, text = self.page.id_prefix, self.page.text
        if begins_with_erasure(text):
            return "".join(map(to_sse, self.events()))
        lines = lines_of(text)
        return "".join(
            [
                f"id: {prefix}{slot:06x}\nevent: {event_of(line)}\ndata: {data_of(line)}\n\n"
                for slot, line in self.page.number_lines(lines, self.first)
            ]
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The *lines* of living objects of one bucket. All their events have the id *cursor*."""

    cursor: str
    lines: Sequence[str]

    def events(self) -> Iterable[Event]:
        return (Event(self.cursor, "insert", data_of(line)) for line in self.lines)

    def sse(self) -> str:
        head = f"id: {self.cursor}\nevent: insert\ndata: "
        return "".join([f"{head}{data_of(line)}\n\n" for line in self.lines])


@dataclass(frozen=True, slots=True)
class Written:
    """The events of *part*, formatted by *write*, which adds traces or uses another format."""

    part: Part
    write: Callable[[Event], str]

    def events(self) -> Iterable[Event]:
        return self.part.events()

    def sse(self) -> str:
        return "".join(map(self.write, self.part.events()))


def page_part(
    page: Page, wanted: Filter, first: int = 0, removed: RemovedBySlot | None = None
) -> Part:
    """Return the operations of *page* from slot *first* on that match the filter.

    For *removed* see `page_events`.
    """
    if wanted.leave:
        return Chosen(list(_events_and_leaves(page, wanted, first, removed)))
    if wanted.is_everything:
        return PageSlice(page, first, wanted.erasures)
    found = _matching(page, wanted, first)
    if found is None:
        return PageSlice(page, 0, wanted.erasures)
    return PageSlice(page.only(found), 0, wanted.erasures) if found else NO_EVENTS


def page_events(
    page: Page, wanted: Filter, first: int = 0, removed: RemovedBySlot | None = None
) -> Iterable[Event]:
    """Return the operations of *page* from slot *first* on that match the filter.

    If the filter requests events `leave`, also return a `leave` for each operation that removed a
    matching parent. *removed* has the parents that the operations of the page removed, or is None
    if they are unknown.
    """
    return page_part(page, wanted, first, removed).events()


def _matching(page: Page, wanted: Filter, first: int) -> Sequence[tuple[int, str]] | None:
    """Return the slots and lines from slot *first* on that match the filter; None if all match."""
    text = page.text
    if not wanted.may_match(text):
        return ()
    lines = lines_of(text)
    names = _names(text, wanted)
    if names is None:
        some = [each for each in page.number_lines(lines, first) if wanted.may_match(each[1])]
        found = [each for each in some if wanted.matches(operation_of(each[1]))]
    elif wanted.may_match_any(names):
        entries = [*page.number_lines(lines)]
        found = [entries[at] for at in wanted.select(names) if entries[at][0] >= first]
    else:
        return ()
    return None if 0 < len(found) == len(lines) else found


def _names(text: str, wanted: Filter) -> Names | None:
    """Return the names of the lines of *text*, or None if it is better searched for values.

    This is so if the text is short, or a short filter is the first one that is applied to it.
    """
    if text.count("\n") < _UNNAMED_LINES:
        return None
    if text not in _named and not wanted.is_long:
        _named[text] = None
        return None
    names = _named.get(text)
    if names is None:
        _named[text] = names = Names.of([operation_of(line) for line in lines_of(text)])
        while len(_named) > 1 and sum(map(len, list(_named))) > _NAMED_CHARS_MAX:
            _named.popitem(last=False)
    return names


def _events_and_leaves(
    page: Page, wanted: Filter, first: int, removed: RemovedBySlot | None
) -> Iterator[Event]:
    if page.compacted:
        removed = None  # unknown: compaction may have removed an operation that removed a parent
    # Look at the filter first: the text of a packed page is inflated at each use.
    if wanted.is_long and removed is not None and (names := _names(page.text, wanted)):
        parents = names.parents.union(*removed.values())
        if not wanted.may_match_any(names._replace(parents=parents)):
            return
    for slot, line in page.entries(first):
        operation = operation_of(line)
        if wanted.matches(operation):
            yield of_line(page.id_prefix, slot, line, page.trace, erasures=wanted.erasures)
        elif wanted.left_by(operation, None if removed is None else removed.get(slot, ())):
            event = of_line(page.id_prefix, slot, line, page.trace)
            yield redacted_leave_of(event) if wanted.redacted else leave_of(event)


def row_event(cursor: str, row: Row, wanted: Filter, *, changed: bool) -> Event | None:
    """Return the event for *row* with the id *cursor*, or None if the filter excludes it.

    With *changed*, the consumer gets the objects that changed since its cursor. The state does not
    have the parents that were removed from an object. The consumer therefore gets a `leave` for
    each object that does not match, because the object may have matched before.
    """
    operation = None if wanted.is_everything else operation_of(row.line)
    if operation is None or wanted.matches(operation):
        if is_erasure(row.line):
            return Event(cursor, *content_of(row.line, erasures=wanted.erasures))
        return Event(cursor, "delete" if row.deleted else "insert", data_of(row.line))
    if changed and wanted.left_by(operation, None):
        return Event(cursor, LEAVE, content_of(row.line)[1])
    return None


_PLACEHOLDER = re.compile(r"\{\{(type|id)\}\}")


def with_ref(event: Event, template: str) -> Event:
    """Return *event* with `ref` as the last key of its data; `reset` and `live` have no data."""
    if not template or not event.data:
        return event
    data = json.loads(event.data)
    # Replace both placeholders in one pass, so that a type or id that looks like a placeholder
    # stays as it is. Do not escape types and ids, because they may be paths.
    ref = _PLACEHOLDER.sub(lambda place: str(data[place[1]]), template)
    return event._replace(data=f'{event.data[:-1]},"ref":{to_canonical_json(ref)}}}')


def with_refs(parts: Sequence[Part], template: str) -> Sequence[Part]:
    """Return *parts* with a `ref` in each event if there is a *template*."""
    return [Linked(part, template) for part in parts] if template else parts


@dataclass(frozen=True, slots=True)
class Linked:
    """The events of *part*, each with its `ref`."""

    part: Part
    template: str

    def events(self) -> Iterable[Event]:
        return (with_ref(event, self.template) for event in self.part.events())

    def sse(self) -> str:
        if isinstance(self.part, PageSlice):
            return _linked_text(self.part, self.template)
        return _text(self.part, self.template)


# A sequence of events. `sse` returns the same events as `events`, as SSE blocks. Many parts build
# the blocks again at each call of `sse`, so a caller should call `sse` only once.
Part = Chosen | PageSlice | Rows | Written | Linked


def _text(part: Part, template: str) -> str:
    return "".join(to_sse(with_ref(event, template)) for event in part.events())


@lru_cache(maxsize=_LONG_MAX)
def _linked_text(part: PageSlice, template: str) -> str:
    """Return the text of *part*; cache it for all streams that wait at the end of a feed."""
    return _text(part, template)
