"""What a filter picks of pages, as the log and as the archive has them."""

from __future__ import annotations

from dataclasses import replace

from tidings.core.catchup.matching import page_events, page_part
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING, Filter, parse
from tidings.core.model.pages import Page

from tests.core.scene import line, page

ANN = "user/ann"
WHOLE = page(7, line("a"), line("b", parents=[ANN]), line("c"))
SELECTED = WHOLE.only([(1, line("b", parents=[ANN]))])
COMPACTED = replace(SELECTED, compacted=True)


def ids(events: list[Event]) -> list[str]:
    """`update 000001`, ..."""
    return [f"{event.name} {event.id[-6:]}" for event in events]


def told(of: Page, wanted: Filter = EVERYTHING, first: int = 0) -> list[str]:
    return ids(list(page_part(of, wanted, first).events()))


def test_events_of_a_page() -> None:
    """From a slot on, with their ids."""
    assert ids(list(page_events(WHOLE, EVERYTHING, 1))) == ["update 000001", "update 000002"]
    assert told(WHOLE, first=2) == ["update 000002"]
    assert told(WHOLE, parse(None, ANN)) == ["update 000001"]


def test_an_entry_that_was_left_keeps_its_id() -> None:
    """Neither a selection nor compaction moves it: consumers have these ids."""
    for left in (SELECTED, COMPACTED):
        assert told(left) == told(left, first=1) == ["update 000001"]
        assert told(left, first=2) == []
        assert told(left, parse(None, ANN)) == told(left, parse(None, ANN), 1) == ["update 000001"]
        assert told(left, parse("user", None)) == told(left, parse(None, ANN), 2) == []


def test_of_a_page_that_was_compacted_departures_are_unknown() -> None:
    """What took the parent away may be gone: whatever does not match may have left."""
    leaving = parse(None, "user/bob", "true")

    assert ids(list(page_events(COMPACTED, leaving, 0, {}))) == ["leave 000001"]
    assert ids(list(page_events(WHOLE, leaving, 0, {}))) == []


def test_departures_of_what_was_copied_are_known() -> None:
    """A feed that copied some entries of a page has worked out itself what they took away."""
    leaving = parse(None, "user/bob", "true")

    assert ids(list(page_events(SELECTED, leaving, 0, {}))) == []
    assert ids(list(page_events(SELECTED, leaving, 0, {1: ("user/bob",)}))) == ["leave 000001"]
    assert ids(list(page_events(SELECTED, leaving, 0, None))) == ["leave 000001"]
    assert ids(list(page_events(SELECTED, leaving, 2, None))) == []
