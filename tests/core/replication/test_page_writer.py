"""Pages as a relay writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.errors import BrokenPortion
from tidings.core.model.pages import Page
from tidings.core.replication.page_writer import fresh, grouped, packed

from tests.core.scene import NOW, PAGE_MS, line, page


def test_D8_what_is_here_already_is_left_out() -> None:
    """And only what follows the checkpoint without a hole is taken."""
    pages = [page(number, line()) for number in (3, 4, 5)]

    assert fresh(pages, 2) == pages
    assert fresh(pages, 4) == pages[2:]
    assert fresh(pages, 9) == []


@pytest.mark.parametrize("numbers", [(4,), (3, 5), (4, 3), (3, 3)])
def test_a_gap_is_no_portion(numbers: tuple[int, ...]) -> None:
    """Nothing behind it is taken either."""
    with pytest.raises(BrokenPortion, match="is next"):
        fresh([page(number, line()) for number in numbers], 2)


def test_D2_a_page_is_kept_with_its_bytes_time_and_slots() -> None:
    """A large one is packed anew, and unpacks to the same."""
    small, filler = page(7, line("a"), line("b"), at_ms=NOW - 5), page(8)
    lines = [line(str(number), data="x" * 40) for number in range(200)]
    large = replace(page(9), body="\n".join(lines))
    some = large.only([(3, lines[3]), (150, lines[150])])

    for each in (small, filler, large, some):
        kept = packed(each, "r", now_ms=NOW, page_ms=PAGE_MS)
        assert (kept.number, kept.text, kept.at_ms) == (each.number, each.text, each.at_ms)
        assert list(kept.entries()) == list(each.entries())
        assert kept.append_id == "r"
    assert isinstance(packed(large, "r", now_ms=NOW, page_ms=PAGE_MS).body, bytes)


def test_a_page_expires_after_the_floor_has_passed_it() -> None:
    """As any page; an old one stays a day, within which retention passes or extends it."""
    young = packed(page(1, line(), at_ms=NOW), "r", now_ms=NOW + 5, page_ms=PAGE_MS)
    old = packed(page(1, line(), at_ms=NOW - 3 * PAGE_MS), "r", now_ms=NOW, page_ms=PAGE_MS)

    assert young.expires_ms == NOW + PAGE_MS
    assert old.expires_ms == NOW + limits.TTL_SLACK_MS


def test_a_page_with_too_many_entries_is_refused() -> None:
    """An upstream that is none of ours could send it."""
    many = Page(1, "\n".join(["{}"] * (limits.REQUEST_OPERATIONS_MAX + 1)), "", NOW)
    with pytest.raises(BrokenPortion, match="holds 1001 entries"):
        packed(many, "r", now_ms=NOW, page_ms=PAGE_MS)


def test_a_write_holds_so_many_pages_and_bytes() -> None:
    """A transaction of 100 items and 4 MB holds them, with the relay and the head."""
    small = [page(number, line()) for number in range(1, 201)]
    large = [Page(number, b"x" * limits.PAGE_BYTES_MAX, "", NOW) for number in range(1, 21)]
    huge = [Page(1, b"x" * (limits.RELAY_WRITE_BYTES + 1), "", NOW)]

    assert [len(group) for group in grouped(small)] == [90, 90, 20]
    assert [len(group) for group in grouped(large)] == [9, 9, 2]
    assert [each for group in grouped(small) for each in group] == small
    assert [len(group) for group in grouped(huge)] == [1]
    assert list(grouped([])) == []
