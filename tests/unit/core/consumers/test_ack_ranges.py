"""Messages that were acknowledged out of order: spans of slots."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidings.core.consumers.position import (
    Span,
    decode_spans,
    encode_spans,
    in_spans,
    join_spans,
    spans_after,
)
from tidings.core.model.cursors import PAGE_END, Place

Entries = set[tuple[int, int]]
ENTRIES = st.sets(st.tuples(st.integers(1, 4), st.integers(0, 6)))


def places(entries: Entries) -> list[Place]:
    return [Place(page, slot, 9) for page, slot in entries]


@given(ENTRIES, ENTRIES)
def test_spans_are_a_set_of_entries(
    first: set[tuple[int, int]], then: set[tuple[int, int]]
) -> None:
    """This holds for any order; neighbours share a span, and no entry is in two spans."""
    spans = join_spans(join_spans((), places(first)), places(then))
    everything = {(page, slot) for page in range(1, 5) for slot in range(8)}
    assert {each for each in everything if in_spans(spans, Place(*each, 9))} == first | then
    assert list(spans) == sorted(spans)
    for one, two in pairwise(spans):
        assert one.page < two.page or one.last + 1 < two.first
    assert decode_spans(encode_spans(spans)) == spans


@given(ENTRIES, st.integers(1, 4), st.integers(0, 6))
def test_what_is_passed_is_forgotten(entries: Entries, page: int, slot: int) -> None:
    """Only passed entries are dropped."""
    left = spans_after(join_spans((), places(entries)), Place(page, slot, 9))
    everything = {(page, slot) for page in range(1, 5) for slot in range(8)}
    kept = {each for each in everything if in_spans(left, Place(*each, 9))}
    assert kept == {each for each in entries if each > (page, slot)}


def test_the_end_of_a_page_passes_all_of_it() -> None:
    """This holds for any number of slots."""
    spans = (Span(3, 0, 900), Span(4, 1, 2))
    assert spans_after(spans, Place(3, PAGE_END, 9)) == (Span(4, 1, 2),)


def test_spelled() -> None:
    """Operators see the spans in this form."""
    assert encode_spans((Span(3, 0, 9), Span(4, 1, 1))) == "3.0-9 4.1-1"
    assert decode_spans("") == ()
