"""The events and the SSE text that a catch-up sends of pages and rows, whole or filtered.

Refs: where an event's object is found.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, op, page
from tidings.core.catchup import matching
from tidings.core.catchup.matching import Chosen, PageSlice, Part, Rows, page_events, page_part
from tidings.core.model import events
from tidings.core.model.events import Event, of_line, to_sse
from tidings.core.model.filters import EVERYTHING, Filter, parse
from tidings.core.model.pages import Page, encode

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
EVENTS = st.sampled_from(("insert", "update", "delete"))


def same(part: Part) -> bool:
    """Return True if the text is that of the events."""
    return part.sse() == "".join(events.to_sse(event) for event in part.events())


@given(st.lists(st.tuples(NAMES, EVENTS), min_size=1, max_size=5), st.integers(0, 5))
def test_O30_a_slice_of_a_page_is_the_text_of_its_events(
    operations: list[tuple[str, str]], first: int
) -> None:
    """For any names the fast path and the slow one write the same blocks."""
    lines = [line(name, event, parents=[name]) for name, event in operations]
    part = PageSlice(Page(7, encode(lines), "", NOW), first)

    assert same(part)
    assert len(list(part.events())) == max(0, len(lines) - first)


@given(st.sets(st.integers(0, 9)), st.integers(0, 10))
def test_a_slice_of_a_page_with_holes(slots: set[int], first: int) -> None:
    """The same two ways; it begins with the next entry where the slot is a hole."""
    whole = page(7, *(line(f"x{number}") for number in range(10)))
    part = PageSlice(whole.only([(slot, whole.lines[slot]) for slot in sorted(slots)]), first)

    assert same(part)
    ids = [event.id for event in part.events()]
    assert ids == [f"{whole.id_prefix}{slot:06x}" for slot in sorted(slots) if slot >= first]


def test_a_packed_page_and_a_filler() -> None:
    """Deflated or empty makes no difference."""
    lines = [line(f"x{number}") for number in range(1000)]
    packed = PageSlice(Page(7, encode(lines), "", NOW))

    assert isinstance(packed.page.body, bytes)
    assert same(packed) and packed.sse().count("\n\n") == 1000
    assert PageSlice(page(8)).sse() == ""


@given(st.lists(NAMES, max_size=5))
def test_O60_rows_are_inserts_under_one_id(names: list[str]) -> None:
    """The id is the bucket's cursor, the event insert, whatever the object's last one was."""
    part = Rows("0" * 24, [line(name, "update") for name in names])

    assert same(part)
    assert {(event.id, event.name) for event in part.events()} <= {("0" * 24, "insert")}


def test_chosen_events() -> None:
    """They are sent unchanged; marks get the data that browsers need."""
    part = Chosen([Event("1", "reset", ""), events.of_line("p", 1, line())])

    assert same(part)
    assert part.sse().startswith("id: 1\nevent: reset\ndata: {}\n\nid: p000001\n")
    assert op()["id"] in part.sse()


ANN = "user/ann"
COMPLETE_PAGE = page(7, line("a"), line("b", parents=[ANN]), line("c"))
SELECTED = COMPLETE_PAGE.only([(1, line("b", parents=[ANN]))])
COMPACTED = replace(SELECTED, compacted=True)


def slots(events: list[Event]) -> list[str]:
    """Return `update 000001`, ..."""
    return [f"{event.name} {event.id[-6:]}" for event in events]


def picked(of: Page, wanted: Filter = EVERYTHING, first: int = 0) -> list[str]:
    return slots(list(page_part(of, wanted, first).events()))


def test_events_of_a_page() -> None:
    """From a slot on, with their ids."""
    assert slots(list(page_events(COMPLETE_PAGE, EVERYTHING, 1))) == [
        "update 000001",
        "update 000002",
    ]
    assert picked(COMPLETE_PAGE, first=2) == ["update 000002"]
    assert picked(COMPLETE_PAGE, parse(None, ANN)) == ["update 000001"]


def test_an_entry_that_was_left_keeps_its_id() -> None:
    """Neither a selection nor compaction moves it: consumers have these ids."""
    for left in (SELECTED, COMPACTED):
        assert picked(left) == picked(left, first=1) == ["update 000001"]
        assert picked(left, first=2) == []
        anns = parse(None, ANN)
        assert picked(left, anns) == picked(left, anns, 1) == ["update 000001"]
        assert picked(left, parse("user", None)) == picked(left, anns, 2) == []


def test_removed_parents_of_a_compacted_page_are_unknown() -> None:
    """The operation that removed the parent may have been compacted: any entry that does not match
    may have left.
    """
    leaving = parse(None, "user/bob", "true")

    assert slots(list(page_events(COMPACTED, leaving, 0, {}))) == ["leave 000001"]
    assert slots(list(page_events(COMPLETE_PAGE, leaving, 0, {}))) == []


def test_removed_parents_of_what_was_copied_are_known() -> None:
    """A feed that copied some entries of a page has worked out itself what they took away."""
    leaving = parse(None, "user/bob", "true")

    assert slots(list(page_events(SELECTED, leaving, 0, {}))) == []
    assert slots(list(page_events(SELECTED, leaving, 0, {1: ("user/bob",)}))) == ["leave 000001"]
    assert slots(list(page_events(SELECTED, leaving, 0, None))) == ["leave 000001"]
    assert slots(list(page_events(SELECTED, leaving, 2, None))) == []


TEMPLATE = "http://api/{{type}}/{{id}}"


def event_of(name: str = "x1", **fields: Any) -> Event:
    return of_line("", 0, line(name, **fields))


def ref_of(event: Event, template: str = TEMPLATE) -> object:
    return json.loads(matching.with_ref(event, template).data)["ref"]


def test_O32_the_last_key_of_the_data() -> None:
    """The ref is added after all other fields; nothing else changes."""
    event = event_of("X1", data={"a": 1})

    linked = matching.with_ref(event, TEMPLATE)
    assert linked == event._replace(data=event.data[:-1] + ',"ref":"http://api/video/X1"}')
    assert list(json.loads(linked.data))[-1] == "ref"


@pytest.mark.parametrize(
    ("template", "name", "ref"),
    [
        ("{{id}}", "x1", "x1"),
        ("{{id}}{{id}}-{{type}}", "x1", "x1x1-video"),
        ("http://api/all", "x1", "http://api/all"),
        ("{{{id}}}", "x1", "{x1}"),
        (TEMPLATE, "a b/ä?&<\"'\\", "http://api/video/a b/ä?&<\"'\\"),
        (TEMPLATE, "{{type}}", "http://api/video/{{type}}"),
        (TEMPLATE, "\\g<0>\\1", "http://api/video/\\g<0>\\1"),
        (TEMPLATE, "a\u2028b", "http://api/video/a\u2028b"),
    ],
)
def test_O32_replaced_as_text(template: str, name: str, ref: str) -> None:
    """Every placeholder is replaced in one pass without escaping; braces in a name are text."""
    event = event_of(name)

    assert ref_of(event, template) == ref
    assert len(matching.with_ref(event, template).data.splitlines()) == 1


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_O32_any_name(name: str) -> None:
    """The result is JSON and has the name unchanged."""
    assert ref_of(event_of(name)) == f"http://api/video/{name}"


def test_without_a_template_nothing_is_touched() -> None:
    """The very same events and parts: no line is parsed."""
    event, parts = event_of(), [PageSlice(page(1, line()))]

    assert matching.with_ref(event, "") is event
    assert matching.with_refs(parts, "") is parts


def test_a_part_in_both_forms() -> None:
    """SSE blocks and events have the same content."""
    events = [event_of("a"), Event("1", "live", "")]
    (part,) = matching.with_refs([Chosen(events)], TEMPLATE)

    expected = [matching.with_ref(events[0], TEMPLATE), events[1]]
    assert list(part.events()) == expected
    assert part.sse() == "".join(map(to_sse, expected))
