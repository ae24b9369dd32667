"""Pages: the unit of append.

Unpacking is bounded, whatever size the packed bytes claim.
"""

from __future__ import annotations

import gzip
import random
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line
from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.errors import BrokenPart, TooLarge
from tidings.core.model import cursors, pages
from tidings.core.model.pages import GZIP, Page, inflate
from tidings.core.state.removed_parents import RemovedParents

LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1),
    min_size=1,
    max_size=20,
)


@given(LINES, st.integers(1, 100))
def test_a_body_reads_back(lines: list[str], times: int) -> None:
    """This holds for any lines, and for a page of any size."""
    lines *= times
    lines = lines[: limits.REQUEST_OPERATIONS_MAX]

    assert Page(1, pages.encode(lines), "id", NOW).lines == lines


@pytest.mark.parametrize("character", ["x", "\u20ac"])
def test_small_pages_stay_readable_and_large_ones_shrink(character: str) -> None:
    """Below a write unit compression saves nothing; the limit is in bytes, not in characters."""
    plain = character * (limits.PAGE_PLAIN_BYTES_MAX // len(character.encode()))

    assert pages.encode([plain]) == plain
    packed = pages.encode([plain + character])
    assert isinstance(packed, bytes) and len(packed) < len(plain)


def test_what_packs_into_no_item_is_refused() -> None:
    """Noise does not compress; the error says what to do."""
    noise = random.Random(1)
    lines = ["".join(noise.choices(string.printable[:90], k=1000)) for _ in range(600)]

    with pytest.raises(TooLarge, match=r"a page has up to 380000 compressed bytes.*send fewer"):
        pages.encode(lines)


@pytest.mark.parametrize("count", [0, limits.REQUEST_OPERATIONS_MAX + 1])
def test_how_many_lines_a_page_holds(count: int) -> None:
    """An empty list or too many lines is a mistake of the caller, which must have checked them."""
    with pytest.raises(AssertionError):
        pages.encode([line()] * count)


def test_a_filler_is_empty() -> None:
    """It closes a hole and holds nothing."""
    filler = pages.filler(7, at_ms=NOW, expires_ms=NOW + 1)

    assert not filler.body and filler.lines == []
    assert (filler.number, filler.append_id) == (7, pages.FILLER_ID)


def test_a_page_of_which_entries_were_left_out() -> None:
    """The others keep their slots, however it is asked for them."""
    whole = Page(7, "a\nb\nc\nd", "id", NOW)
    some = whole.only([(1, "b"), (3, "d")])

    assert list(some.entries()) == list(some.entries(1)) == [(1, "b"), (3, "d")]
    assert list(some.entries(2)) == [(3, "d")] and list(some.entries(4)) == []
    assert [some.at(slot) for slot in range(5)] == [None, "b", None, "d", None]
    assert (some.last_slot, some.lines, some.id_prefix) == (3, ["b", "d"], whole.id_prefix)
    assert whole.only([]).last_slot == -1 and list(whole.only([]).entries()) == []


def test_a_page_that_is_whole() -> None:
    """Its slots are the numbers of its lines."""
    whole = Page(7, "a\nb", "id", NOW)

    assert list(whole.entries(1)) == [(1, "b")] and list(whole.entries(2)) == []
    assert [whole.at(slot) for slot in range(3)] == ["a", "b", None]
    assert (whole.last_slot, Page(7, "", "id", NOW).last_slot) == (1, -1)


def test_a_page_is_not_read_with_slots_of_another() -> None:
    """A number too few would move the ids of all that follow."""
    with pytest.raises(ValueError, match="zip"):
        list(Page(7, "a\nb", "id", NOW, slots=(4,)).entries())


def test_ids_of_a_page() -> None:
    """An id is the second of the commit, the number and the slot; the page's end is after every
    slot."""
    page = Page(7, "a\nb", "", NOW + 999)

    assert page.seconds == NOW // 1000
    assert cursors.parse(f"{page.id_prefix}000001") == cursors.Place(7, 1, NOW // 1000)
    assert page.end == cursors.Place(7, cursors.PAGE_END, NOW // 1000)


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_what_fits_comes_back(size: int) -> None:
    """This holds up to the limit itself, in both formats."""
    plain = b"x" * size
    assert inflate(zlib.compress(plain), 100) == plain
    assert inflate(gzip.compress(plain), 100, GZIP) == plain


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (gzip.compress(b"x" * 101, mtime=0), "more than 100"),
        (gzip.compress(b"x" * 10_000_000, mtime=0), "more than 100"),
        (gzip.compress(b"x" * 50, mtime=0)[:-1], "the data is truncated"),
        (gzip.compress(b"x", mtime=0) + b"y", "other bytes follow"),
        (gzip.compress(b"x", mtime=0) + gzip.compress(b"y", mtime=0), "other bytes follow"),
        (b"", "the data is truncated"),
        (b"no gzip", "incorrect header"),
    ],
)
def test_anything_else_is_refused(packed: bytes, why: str) -> None:
    """It is not unpacked beyond the limit."""
    with pytest.raises(zlib.error, match=why):
        inflate(packed, 100, GZIP)


def test_every_reader_of_packed_bytes_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """This covers pages, their removed parents, and parts of the archive."""
    for name in ("PAGE_TEXT_BYTES_MAX", "ARCHIVE_UNPACKED_BYTES_MAX"):
        monkeypatch.setattr(limits, name, 1000)
    bomb = zlib.compress(b" " * 1001)
    with pytest.raises(zlib.error):
        _ = Page(1, bomb, "a", 0).text
    with pytest.raises(zlib.error):
        _ = RemovedParents(1, bomb).by_slot
    with pytest.raises(BrokenPart, match="more than 1000 bytes"):
        segments.decode(gzip.compress(b" " * 1001))
