"""Refs: where an event's object is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import line, page
from tidings.core.catchup import matching
from tidings.core.catchup.matching import Chosen, PageSlice
from tidings.core.model.events import Event, of_line, to_sse

TEMPLATE = "http://api/{{type}}/{{id}}"


def event_of(name: str = "x1", **fields: Any) -> Event:
    return of_line("", 0, line(name, **fields))


def ref_of(event: Event, template: str = TEMPLATE) -> object:
    return json.loads(matching.with_ref(event, template).data)["ref"]


def test_O32_the_last_key_of_the_data() -> None:
    """Behind everything else the operation carries; nothing else changes."""
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
    """Every placeholder, in one pass, with nothing escaped; what a name holds is text."""
    event = event_of(name)

    assert ref_of(event, template) == ref
    assert len(matching.with_ref(event, template).data.splitlines()) == 1


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_O32_any_name(name: str) -> None:
    """What comes out is JSON and holds the name as it is."""
    assert ref_of(event_of(name)) == f"http://api/video/{name}"


def test_without_a_template_nothing_is_touched() -> None:
    """The very same events and parts: no line is parsed."""
    event, parts = event_of(), [PageSlice(page(1, line()))]

    assert matching.with_ref(event, "") is event
    assert matching.with_refs(parts, "") is parts


def test_a_part_in_both_forms() -> None:
    """As blocks and as events, the same."""
    events = [event_of("a"), Event("1", "live", "")]
    (part,) = matching.with_refs([Chosen(events)], TEMPLATE)

    expected = [matching.with_ref(events[0], TEMPLATE), events[1]]
    assert list(part.events()) == expected
    assert part.sse() == "".join(map(to_sse, expected))
