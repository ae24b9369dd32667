"""Compaction: the part that it covers, the entries that it keeps, the parts that it merges; no
reader ever misses a page.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import MemoryArchive
from tests.unit.core.archive.selecting import select_entries
from tests.unit.core.scene import NOW, line
from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.archive.compaction import (
    PAGE_BYTES,
    Piece,
    Weighed,
    below,
    bound,
    closed_parts,
    covered_parts,
    groups,
    join_parts,
    older,
    pieces,
)
from tidings.core.archive.segments import Span
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.model.cursors import PAGE_END, Place, Replication, Since
from tidings.core.model.operations import ERASED_MARK, is_change, object_key, parse_line
from tidings.core.model.pages import Page

FEED = "main"
HANDLED = {"state": 90, "push": 80}


def span(first: int, last: int) -> Span:
    return Span(last=last, first=first)


def kept(number: int, *lines: str) -> Page:
    return Page(number, "\n".join(lines), "", NOW + number)


def test_T17_the_last_part_is_never_closed() -> None:
    """A part that overlaps the last one is not closed either; without parts none is."""
    assert closed_parts([]) == []
    assert closed_parts([span(1, 9)]) == []
    assert closed_parts([span(1, 9), span(10, 12), span(11, 14)]) == [span(1, 9)]
    assert closed_parts([span(1, 9), span(8, 10), span(11, 14)]) == [span(1, 9), span(8, 10)]


def test_T18_who_acknowledged_nothing_bounds_it_to_nothing() -> None:
    """A follower that never ran has the same effect."""
    assert bound([None, Place(50, 3, 0)], HANDLED) == 0
    assert bound([Place(50, PAGE_END, 0)], {"state": 90}) == 0


def test_the_earliest_reader_is_the_bound() -> None:
    """A page counts when all of it is acknowledged; a copy needs nothing of the log before it."""
    assert bound([], HANDLED) == 80
    assert bound([Place(50, 3, 0), Place(60, 0, 0)], HANDLED) == 49
    assert bound([Place(50, PAGE_END, 0)], HANDLED) == 50
    assert bound([Since(0)], HANDLED) == 80
    assert bound([Replication(0, 70, 3, False)], HANDLED) == 70
    assert bound([], HANDLED | {"archive": 3, "audit": 20}) == 20


def test_a_part_that_reaches_beyond_the_bound_is_left() -> None:
    """A bound within a part ends before it."""
    assert below([span(1, 9), span(10, 20)], 19) == [span(1, 9)]
    assert below([span(1, 9), span(10, 20)], 20) == [span(1, 9), span(10, 20)]


def test_parts_are_known_by_the_age_of_their_last_page() -> None:
    """The age of only a few of many parts is read."""
    spans = [span(number, number) for number in range(1, 1001)]
    seen: list[int] = []

    def at_ms(each: Span) -> int:
        seen.append(each.last)
        return each.last * 10

    assert older(spans, at_ms, 4_000) == spans[:400]
    assert len(seen) <= 11


def test_each_page_is_read_once_up_to_a_hole() -> None:
    """This holds for any overlap of parts, and any order of them."""
    parts = [span(6, 10), span(1, 15), span(14, 20), span(30, 31)]

    assert list(pieces(parts, 0)) == [Piece(span(1, 15), 1, 15), Piece(span(14, 20), 16, 20)]
    assert list(pieces(parts, 17)) == [Piece(span(14, 20), 18, 20)]
    assert list(pieces(parts, 0, leap=True))[2:] == [Piece(span(30, 31), 30, 31)]
    assert list(pieces(parts, 20)) == []
    assert list(pieces([], 0)) == []


def test_the_last_operation_of_each_object_is_left() -> None:
    """Deletes are kept as well, and so are changes, which have no object, unless *changes* is
    False."""
    change = line_of(Change("1", ("t",)), name="c", now_ms=NOW)
    pages = [kept(1, line("a"), change, line("b")), kept(2, line("a", event="delete"))]

    assert select_entries(pages) == {(1, 1), (1, 2), (2, 0)}
    assert select_entries(pages, changes=False) == {(1, 2), (2, 0)}


def test_erasure_entries_are_left_until_they_are_erased() -> None:
    """An erasure that is not done may need its entry, even if the object was inserted again."""
    entry = encode_entry(Entry("video", "a", "ann", "asked"), now_ms=NOW)
    erased = f'{{"event":"delete","timestamp":"","parents":[],"type":"video","id":"a"{ERASED_MARK}'
    pages = [kept(1, erased, line("b")), kept(2, entry), kept(3, line("a"))]

    assert select_entries(pages) == {(1, 1), (2, 0), (3, 0)}
    assert select_entries([kept(1, erased), kept(2, erased)]) == set()


def test_neighbours_are_merged_up_to_what_a_reader_holds() -> None:
    """Parts on two sides of a hole are not merged. A single part is rewritten only if it loses
    entries.
    """
    half = limits.ARCHIVE_PART_BYTES // 2 - PAGE_BYTES
    parts = [
        Weighed(span(1, 1), 9, 9, half),
        Weighed(span(2, 2), 9, 9, half),
        Weighed(span(3, 3), 9, 9, half + 1),
        Weighed(span(5, 5), 9, 8, half),
        Weighed(span(7, 7), 9, 9, 0),
    ]

    assert groups(parts) == [[span(1, 1), span(2, 2)], [span(5, 5)]]


def test_pages_without_entries_count_too() -> None:
    """Otherwise a part of empty pages would grow without limit."""
    pages = limits.ARCHIVE_PART_BYTES // PAGE_BYTES
    parts = [Weighed(span(1, pages), 0, 0, 0), Weighed(span(pages + 1, pages + 1), 0, 0, 0)]

    assert groups(parts) == []


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=8)
BODIES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=3)


@settings(max_examples=200)
@given(SIZES, st.data())
def test_T19_T21_whenever_it_ends_nothing_is_missing(sizes: list[int], data: st.DataObject) -> None:
    """After every step of a compaction, which may be the last one of a process: the fold of the
    parts is what it was, each object has its last operation, and every page is found by listing
    from the page before it, so that each cursor resumes.
    """
    store, before = MemoryArchive(), _filled(sizes, data)
    for part in before:
        store.put(FEED, *segments.encode(part))
    pages = join_parts(before)
    page = data.draw(st.integers(0, pages[-1].number), label="bound")

    for _ in _compacted(store, page, data):
        _check(store, pages)
    again = list(_compacted(store, page, data))

    _check(store, pages)
    spans = store.list(FEED, 0, 1000)
    reached = max((each.last for each in below(closed_parts(spans), page)), default=0)
    left = [each for each in join_parts(_decoded(store)) if each.number <= reached]
    assert {each[:2] for each in _entries(left)} == select_entries(left)
    assert not any(name == "put" for name in again)


def _filled(sizes: list[int], data: st.DataObject) -> list[list[Page]]:
    parts, number = [], 1
    for size in sizes:
        parts.append([_page(number + at, data.draw(BODIES)) for at in range(size)])
        number += size
    return parts


def _page(number: int, body: list[tuple[str, bool]]) -> Page:
    return kept(number, *(line(id, "delete" if gone else "update") for id, gone in body))


def _compacted(store: MemoryArchive, page: int, data: st.DataObject) -> Iterator[str]:
    """Run a compaction step by step; its puts come in any order, as no reader may rely on one."""
    spans = below(closed_parts(store.list(FEED, 0, 1000)), page)
    parts = {each: segments.decode(store.get(FEED, each) or b"") for each in spans}
    left = select_entries(join_parts(parts.values()))
    weighed = [_weighed(each, pages, left) for each, pages in parts.items()]
    for group in data.draw(st.permutations(groups(weighed))):
        merged = segments.keep_entries(join_parts(parts[each] for each in group), left)
        store.put(FEED, *segments.encode(merged))
        yield "put"
    for each in covered_parts(below(closed_parts(store.list(FEED, 0, 1000)), page)):
        store.remove(FEED, each)
        yield "remove"


def _weighed(span: Span, pages: list[Page], left: set[tuple[int, int]]) -> Weighed:
    entries = list(_entries(pages))
    mine = [each for each in entries if each[:2] in left]
    return Weighed(span, len(entries), len(mine), sum(len(each[2]) for each in mine))


def _check(store: MemoryArchive, pages: list[Page]) -> None:
    left = join_parts(_decoded(store))
    assert [each.number for each in left] == [each.number for each in pages]
    assert _fold(left) == _fold(pages)
    for each in left:
        holder = store.list(FEED, each.number - 1, 1)
        assert holder[0].holds(each.number)
    assert set(_entries(left)) <= set(_entries(pages))


def _decoded(store: MemoryArchive) -> list[list[Page]]:
    return [segments.decode(store.get(FEED, each) or b"") for each in store.list(FEED, 0, 1000)]


def _entries(pages: list[Page]) -> Iterator[tuple[int, int, str]]:
    return ((each.number, slot, text) for each in pages for slot, text in each.entries())


def _fold(pages: list[Page]) -> dict[str, tuple[int, int, str]]:
    return {
        object_key(parse_line(text)): (page, slot, text)
        for page, slot, text in _entries(pages)
        if not is_change(text)
    }
