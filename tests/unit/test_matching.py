"""What a filter picks of pages, as the log and as the archive has them."""

from __future__ import annotations

from tidings.core.archives import Kept
from tidings.core.filters import EVERYTHING, Filter, parse
from tidings.core.frames import Event
from tidings.core.matching import kept_part, page_events

from tests.unit.scene import line, page

ANN = "user/ann"
WHOLE = page(7, line("a"), line("b", parents=[ANN]), line("c"))
# b is what compaction left of it.
COMPACTED = Kept(page(7, line("b", parents=[ANN])), slots=(1,))


def ids(events: list[Event]) -> list[str]:
    """`update 000001`, ..."""
    return [f"{event.name} {event.id[-6:]}" for event in events]


def kept(of: Kept, wanted: Filter = EVERYTHING, first: int = 0) -> list[str]:
    return ids(list(kept_part(of, wanted, first).events()))


def test_events_of_a_page() -> None:
    """From a slot on, with their ids."""
    assert ids(list(page_events(WHOLE, EVERYTHING, 1))) == ["update 000001", "update 000002"]


def test_a_page_of_the_archive_is_as_it_was_in_the_log() -> None:
    """Where nothing was compacted."""
    assert kept(Kept(WHOLE), first=2) == ["update 000002"]
    assert kept(Kept(WHOLE), parse(None, ANN)) == ["update 000001"]


def test_an_entry_that_was_left_keeps_its_id() -> None:
    """Compaction moves nothing: consumers have these ids."""
    assert kept(COMPACTED) == kept(COMPACTED, first=1) == ["update 000001"]
    assert kept(COMPACTED, first=2) == []
    assert kept(COMPACTED, parse(None, ANN)) == ["update 000001"]
    assert kept(COMPACTED, parse("user", None)) == []


def test_of_a_page_that_was_compacted_departures_are_unknown() -> None:
    """What took the parent away may be gone: whatever does not match may have left."""
    leaving = parse(None, "user/bob", "true")
    told = kept_part(COMPACTED, leaving, 0, {}).events()

    assert ids(list(told)) == ["leave 000001"]
    assert ids(list(kept_part(Kept(WHOLE), leaving, 0, {}).events())) == []
