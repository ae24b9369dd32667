"""Parts: what a catch-up sends, as events and as SSE text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tidings.core.catchup.batches import Chosen, PageSlice, Part, Rows
from tidings.core.model import events
from tidings.core.model.events import Event
from tidings.core.model.pages import Page, encode

from tests.core.scene import NOW, line, op, page

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
EVENTS = st.sampled_from(("insert", "update", "delete"))


def same(part: Part) -> bool:
    """Whether the text is that of the events."""
    return part.sse() == "".join(events.to_sse(event) for event in part.events())


@given(st.lists(st.tuples(NAMES, EVENTS), min_size=1, max_size=5), st.integers(0, 5))
def test_O30_a_slice_of_a_page_is_the_text_of_its_events(
    operations: list[tuple[str, str]], first: int
) -> None:
    """Whatever the names hold: the quick way and the slow one write the same blocks."""
    lines = [line(name, event, parents=[name]) for name, event in operations]
    found = PageSlice(Page(7, encode(lines), "", NOW), first)

    assert same(found)
    assert len(list(found.events())) == max(0, len(lines) - first)


@given(st.sets(st.integers(0, 9)), st.integers(0, 10))
def test_a_slice_of_a_page_with_holes(slots: set[int], first: int) -> None:
    """The same two ways; it begins with the next entry where the slot is a hole."""
    whole = page(7, *(line(f"x{number}") for number in range(10)))
    found = PageSlice(whole.only([(slot, whole.lines[slot]) for slot in sorted(slots)]), first)

    assert same(found)
    ids = [event.id for event in found.events()]
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
    found = Rows("0" * 24, [line(name, "update") for name in names])

    assert same(found)
    assert {(event.id, event.name) for event in found.events()} <= {("0" * 24, "insert")}


def test_chosen_events() -> None:
    """As they are; marks get the data that browsers need."""
    found = Chosen([Event("1", "reset", ""), events.of_line("p", 1, line())])

    assert same(found)
    assert found.sse().startswith("id: 1\nevent: reset\ndata: {}\n\nid: p000001\n")
    assert op()["id"] in found.sse()
