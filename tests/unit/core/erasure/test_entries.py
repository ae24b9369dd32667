"""The entries of erasures, and the entries that were erased."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidings.core import limits
from tidings.core.erasure.entries import (
    Entry,
    Scrubber,
    Target,
    encode_entry,
    parse_entry,
    parse_request,
    pseudonym,
    without_values,
)
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model.events import content_of
from tidings.core.model.operations import (
    data_of,
    event_of,
    has_object,
    is_erased,
    is_erasure,
    key_of,
    line_from,
    parse_line,
    without_details,
)
from tidings.core.model.pages import Page, encode
from tidings.core.state import removed_parents
from tidings.core.state.removed_parents import RemovedParents

NOW = 1_763_000_000_000
ODD = 'a/"b"\\ ä\u2028€𝄞'
ENTRY = Entry(
    "video", ODD, "key 3k2m", 'asked, "erase":true}', ("user/ann", '],"data":{'), "0" * 24, True
)


def line(
    id_: str = "x", parents: tuple[str, ...] = (), type_: str = "video", **extra: object
) -> str:
    raw = {"event": "update", "type": type_, "id": id_, "parents": list(parents), **extra}
    return line_from(raw, now_ms=NOW)


def page(number: int, *lines: str) -> Page:
    return Page(number, encode(lines), "a", NOW)


def target(id_: str = "x", at: int = 9, **changed: object) -> Target:
    made = Target(f"video/{id_}", id_, (at, 0), (at, 0), pseudonym(at))
    return replace(made, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", [ENTRY, Entry("video", "x", "ann", "why")])
def test_an_entry_comes_back(entry: Entry) -> None:
    """It is a deletion for those that do not know its mark."""
    made = encode_entry(entry, now_ms=NOW)
    assert parse_entry(made) == entry
    assert is_erasure(made) and has_object(made) and event_of(made) == "delete"
    assert parse_line(made).parents == entry.parents


def test_others_see_a_plain_deletion() -> None:
    """Without the principal and the reason; a line of an operation stays as it is."""
    made = encode_entry(ENTRY, now_ms=NOW)
    shown = json.loads(without_details(made))
    assert sorted(shown) == ["event", "id", "parents", "timestamp", "type"]
    assert (shown["id"], tuple(shown["parents"])) == (ENTRY.id, ENTRY.parents)
    asked = json.loads(content_of(made, erasures=True)[1])
    assert asked["data"]["reason"] == ENTRY.reason and "erase" not in asked
    assert without_details(line(data={"data": 1})) == line(data={"data": 1})


@pytest.mark.parametrize(
    "data", [True, {"erase": True}, {"a": 1, "erase": True}, ',"erase":true}', [{"erased": True}]]
)
def test_no_client_can_write_a_mark(data: object) -> None:
    """Nor by a field that the log does not know."""
    for made in (line(data=data), line(data=data, erase=True, erased=True)):
        assert not is_erasure(made) and not is_erased(made)


def test_an_erased_entry_keeps_its_slot_and_time_alone() -> None:
    """Its page has as many lines as before; other objects stay letter by letter."""
    lines = (
        line("y", data="marker-x"),
        line("x", ("user/ann",), tags=["t"], data="secret"),
        line("xx"),
    )
    before = page(3, *lines)
    found = Scrubber([target()]).scrub(before)

    assert found is not None
    assert (found.slots, found.entries) == ({1: pseudonym(9)}, {pseudonym(9): 1})
    assert found.page == replace(before, body=found.page.body)
    assert found.page.lines[0] == lines[0] and found.page.lines[2] == lines[2]
    gone = found.page.lines[1]
    assert is_erased(gone) and not has_object(gone)
    assert json.loads(gone) == {
        "event": "delete",
        "timestamp": json.loads(lines[1])["timestamp"],
        "parents": [],
        "type": "video",
        "id": "erased:9",
        "erased": True,
    }
    assert key_of(gone) == "video/erased:9"
    again = Scrubber([target()]).scrub(found.page)
    assert again is not None and again.page is found.page and again.entries == found.entries
    assert content_of(gone) == ("delete", data_of(gone))


@pytest.mark.parametrize("id_", ["x", "0", ODD, '","id":"x', "erased:9"])
def test_an_id_is_found_however_it_is_spelled(id_: str) -> None:
    """With characters that JSON escapes, too."""
    found = Scrubber([target(id_)]).scrub(page(1, line(id_, data="secret")))
    assert found is not None and "secret" not in found.page.text
    kept = Scrubber([target(id_)], keeps_ids=True).scrub(page(1, line(id_, data="secret")))
    assert kept is not None and parse_line(kept.page.lines[0]).id == id_
    assert "secret" not in kept.page.text and is_erased(kept.page.lines[0])


def test_what_is_not_the_object_stays() -> None:
    """Another type, a name in the data, an entry from the erasure on, and entries of erasures."""
    entry = encode_entry(Entry("video", "x", "ann", "why"), now_ms=NOW)
    others = line("x", type_="user"), line("y", data={"id": "x"}), line("y", ("x",)), entry
    assert Scrubber([target()]).scrub(page(8, *others)) is None
    assert Scrubber([target()]).scrub(page(9, line("x"))) is None
    assert Scrubber([target(until=(8, 1))]).scrub(page(8, line("y"), line("x"))) is None
    assert Scrubber([target(until=(8, 1))]).scrub(page(8, line("x"), line("x"))) is not None


def test_the_own_entry_is_erased_at_the_end() -> None:
    """Not by an earlier or a later erasure of the same object."""
    entry = encode_entry(Entry("video", "x", "ann", "why"), now_ms=NOW)
    own = page(9, entry, line("x", data="lives"))
    assert Scrubber([target(), target(at=12)]).scrub(own) == Scrubber([target(at=12)]).scrub(own)
    found = Scrubber([target(final=True)]).scrub(own)
    assert found is not None and found.slots == {0: pseudonym(9)}
    assert is_erased(found.page.lines[0]) and found.page.lines[1] == own.lines[1]


def test_a_parent_is_removed_from_others() -> None:
    """Only the value itself, only from the parents, and the rest stays letter by letter."""
    parent = "video/x"
    lines = (
        line("y", ("video/xx", parent, "a"), data={"parents": [parent], "n": 1.50}),
        line("z", (parent,)),
        line("w", ("video/x/1",), data=parent),
    )
    found = Scrubber([target(parent=parent)]).scrub(page(3, *lines))
    assert found is not None and found.slots == {} and found.entries == {pseudonym(9): 2}
    assert [parse_line(each).parents for each in found.page.lines] == [
        ("video/xx", "a"),
        (),
        ("video/x/1",),
    ]
    assert (
        data_of(found.page.lines[0]).partition('"type"')[2]
        == data_of(lines[0]).partition('"type"')[2]
    )
    assert without_values(lines[2], {parent}) == lines[2]


def test_removed_parents_lose_slots_and_values() -> None:
    """The rest stays; later pages only lose the value when the entry itself is erased."""
    left = {0: ("video/x", "a"), 1: ("b",), 2: ("video/x",)}
    body = removed_parents.encode(left)
    assert body is not None
    removed = RemovedParents(3, body)
    found = Scrubber([target(parent="video/x")]).scrub_removed(removed, (1,))
    assert found is not None and found.by_slot == {0: ("a",)}
    assert Scrubber([target()]).scrub_removed(removed, ()) is None
    later = replace(removed, page=9)
    assert Scrubber([target(parent="video/x")]).scrub_removed(later, ()) is None
    last = Scrubber([target(parent="video/x", final=True)]).scrub_removed(later, ())
    assert last is not None and last.by_slot == {0: ("a",), 1: ("b",)}


def test_a_page_of_the_shortest_lines_fits() -> None:
    """Marks make it longer than a page of a producer may be, but an item of the store holds it."""
    lines = [line("x") for _ in range(limits.REQUEST_OPERATIONS_MAX)]
    found = Scrubber([target(at=2**40 - 1)]).scrub(page(1, *lines))
    assert found is not None and found.page.size <= limits.ERASED_PAGE_BYTES_MAX


GOOD = {"type": "Video", "id": "x", "reason": "why"}


def test_a_request_is_read() -> None:
    """Like an operation: a type is in lower case."""
    assert parse_request(GOOD, by="ann") == Entry("video", "x", "ann", "why")
    asked = {**GOOD, "parents": True, "before": "0" * 24}
    wanted = Entry("video", "x", "ann", "why", (), "0" * 24, as_parent=True)
    assert parse_request(asked, by="ann") == wanted


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": ""}, "type"),
        ({"type": None}, "type"),
        ({"id": 7}, "id"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * (limits.WHY_CHARS_MAX + 1)}, "reason"),
        ({"parents": 1}, "parents"),
        ({"before": 7}, "before"),
    ],
)
def test_a_wrong_request_names_its_field(change: dict[str, object], field: str) -> None:
    """One of each kind."""
    with pytest.raises(InvalidOperation) as raised:
        parse_request({**GOOD, **change}, by="ann")
    assert raised.value.field == field


def test_a_request_that_is_too_long_is_refused() -> None:
    """The limits are those of an operation."""
    with pytest.raises(TooLarge):
        parse_request({**GOOD, "id": "x" * (limits.ID_BYTES_MAX + 1)}, by="ann")
