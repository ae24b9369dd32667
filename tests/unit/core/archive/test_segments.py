"""The format of the archive."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line
from tidings.core.archive import segments
from tidings.core.archive.segments import Span
from tidings.core.errors import BrokenPart
from tidings.core.model.pages import Page, encode, filler, jump

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)


def kept(number: int, *lines: str, slots: tuple[int, ...] | None = None) -> Page:
    """Return a page as a part returns it: with its text unpacked, without an append id."""
    text, compacted = "\n".join(lines), slots is not None
    return Page(number, text, "", NOW + number, slots=slots, compacted=compacted)


@given(st.lists(st.lists(TEXTS, max_size=4), min_size=1, max_size=6), st.integers(1, 2**40 - 7))
def test_a_part_reads_back(bodies: list[list[str]], first: int) -> None:
    """This holds for any entries, for fillers, and for any first page."""
    pages = [kept(number, *lines) for number, lines in enumerate(bodies, first)]

    span, body = segments.encode(pages)

    assert segments.decode(body) == pages
    assert (span.first, span.last) == (first, first + len(bodies) - 1)
    assert segments.encode(pages) == (span, body)


def test_skipped_numbers_belong_to_the_part() -> None:
    """A reader at the page before them finds the part, and no hole in it."""
    pages = [kept(3, "a"), jump(4, 9, at_ms=NOW, expires_ms=0), kept(10, "b")]

    span, body = segments.encode(pages)

    assert (span.first, span.last) == (3, 10)
    assert [(page.first, page.number) for page in segments.decode(body)] == [
        (3, 3),
        (4, 9),
        (10, 10),
    ]
    assert segments.are_complete(pages, span) and not segments.are_complete(pages[:1], span)
    assert segments.encode(pages[1:])[0] == Span(last=10, first=4)


def test_packed_pages_and_fillers_are_kept_as_what_they_say() -> None:
    """A page that was deflated in the log is stored as text; a filler has no entries."""
    lines = [line(str(number)) * 20 for number in range(50)]
    log = [Page(7, encode(lines), "id", NOW), filler(8, at_ms=NOW, expires_ms=0)]
    assert isinstance(log[0].body, bytes)

    _, body = segments.encode(log)

    pages = segments.decode(body)
    assert [each.lines for each in pages] == [lines, []]
    assert list(pages[0].entries())[49] == (49, lines[49])


def test_parts_are_found_by_their_last_page() -> None:
    """Names sort as spans do, so that one listing from a page on finds the part that holds it."""
    spans = [Span(last=9, first=1), Span(last=10, first=10), Span(last=1000, first=11)]

    assert sorted(span.name for span in reversed(spans)) == [span.name for span in spans]
    assert sorted(reversed(spans)) == spans
    assert [segments.span_of(span.name) for span in spans] == spans
    assert spans[2].holds(11) and spans[2].holds(1000) and not spans[2].holds(10)
    assert segments.span_of("README.txt") is None


def test_a_compacted_part_keeps_slots() -> None:
    """The entries that remain keep their slots, also after a second compaction."""
    pages = [kept(1, "a", "b", "c"), kept(2, "d"), kept(3, "e")]

    once = segments.keep_entries(pages, {(1, 0), (1, 2), (3, 0)})
    twice = segments.keep_entries(once, {(1, 2), (3, 0)})

    assert once == [kept(1, "a", "c", slots=(0, 2)), kept(2, slots=()), kept(3, "e")]
    assert twice == [kept(1, "c", slots=(2,)), kept(2, slots=()), kept(3, "e")]
    assert list(twice[0].entries()) == [(2, "c")]
    assert segments.decode(segments.encode(twice)[1]) == twice


def test_what_was_selected_is_not_compacted() -> None:
    """A page that was copied in part is not marked as compacted: the feed never had its other
    entries."""
    selected = Page(7, "b", "", NOW, slots=(1,))

    pages = segments.decode(segments.encode([selected])[1])

    assert pages == [selected] and not pages[0].compacted
    assert segments.keep_entries(pages, {(7, 1)}) == pages
    assert segments.keep_entries(pages, set()) == [Page(7, "", "", NOW, slots=(), compacted=True)]


BROKEN = {
    "not gzip": b"no",
    "cut": segments.encode([kept(1, "a" * 999)])[1][:-4],
    "no header": gzip.compress(b"a\n"),
    "a header of another kind": gzip.compress(b'{"page":0,"at":1,"lines":0}\n'),
    "slots that are not its entries": gzip.compress(b'{"page":1,"at":1,"lines":1,"slots":[]}\na\n'),
    "slots out of order": gzip.compress(b'{"page":1,"at":1,"lines":2,"slots":[1,0]}\na\nb\n'),
    "slots beyond a page": gzip.compress(b'{"page":1,"at":1,"lines":1,"slots":[1000]}\na\n'),
    "more than whole lines": gzip.compress(b'{"page":1,"at":1,"lines":1}\na\nb'),
    "fewer lines": gzip.compress(b'{"page":1,"at":1,"lines":2}\na\n'),
    "no text": gzip.compress(b"\xff\n"),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=list(BROKEN))
def test_a_part_that_is_none_is_told(body: bytes) -> None:
    """Never read as fewer pages than it had."""
    with pytest.raises(BrokenPart, match=r"a part of the archive|ends within a page"):
        segments.decode(body)
