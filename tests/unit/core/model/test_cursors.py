"""Cursors: a place in a feed as clients see it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.errors import InvalidCursor
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, START, Now, Place, Replication, Since

SECONDS = st.integers(0, 0xFFFFFFFF)
PAGES = st.integers(0, 0xFFFFFFFFFF)
PLACES = st.builds(Place, PAGES, st.integers(0, PAGE_END), SECONDS)
BUCKETS = st.integers(0, limits.BUCKETS)
PARTS = st.integers(0, cursors.PARTS_MAX)
REPLICATIONS = st.builds(Replication, SECONDS, PAGES, BUCKETS, st.booleans(), PARTS)


@given(PLACES | REPLICATIONS)
def test_a_cursor_reads_back(cursor: Place | Replication) -> None:
    """Hex is read in either case; it is always written as 24 lower-case digits, which oplogc
    requires."""
    text = cursor.encode()

    assert re.fullmatch("[0-9a-f]{24}", text)
    assert cursors.parse(text) == cursor
    assert cursors.parse(text.upper()) == cursor


@given(PLACES, PLACES)
def test_places_of_one_second_sort_as_their_ids(one: Place, other: Place) -> None:
    """Text order is log order, so that a person and a database see it too."""
    same = Place(other.page, other.slot, one.seconds)

    assert (one < same) == (one.encode() < same.encode())


@given(st.text() | st.from_regex(r"[+-]?[0-9]{1,16}") | st.from_regex(r"[0-9a-fA-F]{22,26}"))
def test_any_text_is_a_cursor_or_invalid(text: str) -> None:
    """It raises nothing but `InvalidCursor`, and a parsed cursor can be encoded."""
    try:
        cursor = cursors.parse(text)
    except InvalidCursor:
        return
    if isinstance(cursor, Since):
        cursor = Replication(cursor.ms // 1000, 0, 0, False)
    assert isinstance(cursor, Now) or len(cursor.encode()) == 24


@pytest.mark.parametrize("text", ["", "now"])
def test_nothing_and_now_are_the_end_of_the_log(text: str) -> None:
    """A consumer without a past."""
    assert cursors.parse(text) == Now()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("00", 0),
        ("-0", 0),
        ("0000000000000", 0),
        ("-5", -5),
        ("+5", 5),
        ("1", 1),
        ("1795195114525", 1795195114525),
        ("9999999999999", 0xFFFFFFFF * 1000),
    ],
)
def test_decimals_ask_for_a_replication(text: str, ms: int) -> None:
    """They are read as oplog read them: negative ones stay negative, large ones mean our last
    second."""
    assert cursors.parse(text) == Since(ms)


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("5F0000A00000000007000003", Place(7, 3, 0x5F0000A0)),
        ("F" * 24, Place(2**40 - 1, 0x7FFFFF, 2**32 - 1)),
        (f"{5:08x}{2**40 - 1:010x}{0xC00000:06x}", Replication(5, 2**40 - 1, 0, True)),
        (f"{9:08x}{7:010x}800003", Replication(9, 7, 3, False, 0)),  # of before there were parts
        (f"{5:08x}{7:010x}{0x800000 | limits.BUCKETS:06x}", Replication(5, 7, 64, False)),
        (f"{5:08x}{7:010x}{0x800000 | limits.BUCKETS + 1:06x}", Place(7, 65, 5)),
        ("545b55c7f095528dd0f3867c", Place(0xF095528DD0, 0x73867C, 0x545B55C7)),
    ],
)
def test_O37_24_hex_digits_are_a_place(text: str, cursor: Place | Replication) -> None:
    """Both cases are accepted. An id of another system is a place too: the time in its first digits
    counts.
    """
    assert cursors.parse(text) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "abcd",
        "12345678901234",
        "+1234567890123",
        "1_0",
        "\u0660" * 24,
        "0" * 23,
        "a" * 23,
        "a" * 25,
        "g" * 24,
        "1e3",
        "0x10",
        "1 2",
        " 1",
        "1\n",
        "1.0",
        "--1",
        "\u0663",
        "\uff11",
        "NOW",
        "Now",
        "null",
        "\0",
        "a" * 1_000_000,
        "9" * 1_000_000,
    ],
)
def test_O36_what_is_no_cursor(text: str) -> None:
    """Any other text is refused, however long or strange its digits are."""
    with pytest.raises(InvalidCursor, match="cursor: must be 24 hex digits"):
        cursors.parse(text)


def test_the_end_of_a_page_is_behind_every_slot_and_before_the_next_page() -> None:
    """The start of the log is before everything."""
    places = [START, Place(1, 0, 5), Place(1, 999, 5), Place(1, PAGE_END, 5)]
    places.append(Place(2, 0, 4))

    assert all(one < other for one, other in pairwise(places))


FORGED = [
    "f" * 24,
    "0" * 24,
    "F" * 18 + "7fffff",
    "0" * 18 + "800000",
    "0" * 18 + "ffffff",
    f"{NOW // 1000:08x}{2**40 - 1:010x}000000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}800000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}c00040",
    f"{NOW // 1000:08x}{1:010x}7ffffe",
    f"{NOW // 1000:08x}{1:010x}00ffff",
    f"{2**32 - 1:08x}{1:010x}800000",
    f"{2**32 - 1:08x}{0:010x}c0003f",
    "545b55c7f095528dd0f3863c",
    "9" * 13,
    "1",
]


@pytest.mark.parametrize("text", FORGED)
def test_forged_cursors_get_data(scene: Scene, text: str) -> None:
    """For any cursor the stream reaches its frontier, and later operations arrive."""
    scene.projected(op("a"))
    stream = scene.streamer.open(FEED, text)
    for _ in range(200):
        if stream.next().at_frontier:
            break
    else:
        raise AssertionError("never reaches the frontier")

    scene.post(op("new"))
    assert '"id":"new"' in stream.next().text
    assert cursors.parse(stream.progress.cursor)
